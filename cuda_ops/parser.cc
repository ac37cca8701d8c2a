// The grammar of docs/program.md, read line by line.  What the lines mean is checked in verify.cc.
#include <algorithm>

#include "literal.h"
#include "program.h"
#include "program_limits.h"
#include "scanner.h"
#include "table.h"
#include "verify.h"

namespace onnxfuse {
namespace {

AffineTerm parse_term(Scanner& line) {
  AffineTerm term{-1, 1};
  const size_t start = line.position();
  if (!line.peek("d") && !line.peek("r")) {
    const bool negative = line.accept("-");
    const int64_t scale = line.number("the factor of an index", kMaxExtent);
    if (scale == 0 || (scale == 1 && !negative)) line.fail_at(start, "an index with a factor other than 0 and 1");
    line.expect("*", "after the factor of an index");
    term.scale = negative ? -scale : scale;
  }
  if (line.peek("r")) {
    term.dim = kFirstRoll + line.numbered("r", "a roll", kMaxRolls - 1);
  } else {
    term.dim = line.numbered("d", "a dimension of the space", kMaxDims - 1);
  }
  return term;
}

// True where the next thing is a term, false where it is a plain number.
bool term_follows(const Scanner& line) {
  Scanner ahead = line;
  if (ahead.peek("d") || ahead.peek("r") || ahead.peek("-")) return true;
  ahead.number("an index", kMaxExtent);
  return ahead.peek("*");
}

MapEntry parse_entry(Scanner& line) {
  MapEntry entry;
  if (!term_follows(line)) {
    entry.offset = line.number("an index", kMaxExtent);
  } else {
    entry.terms.push_back(parse_term(line));
    while (line.accept("+")) {
      const size_t start = line.position();
      if (!term_follows(line)) {
        entry.offset = line.number("the offset of an index", kMaxExtent);
        if (entry.offset == 0) line.fail_at(start, "an offset other than 0");
        break;
      }
      const AffineTerm term = parse_term(line);
      if (term.dim <= entry.terms.back().dim)
        line.fail_at(start, "the dimensions of an index in ascending order, then rolls");
      entry.terms.push_back(term);
    }
  }
  if (line.accept(":")) entry.extent = line.number("the extent of the dimension", kMaxExtent);
  return entry;
}

IndexMap parse_map(Scanner& line) {
  IndexMap map;
  line.expect("[", "start of the index map");
  if (line.accept("]")) return map;
  do {
    map.push_back(parse_entry(line));
  } while (line.accept(", "));
  line.expect("]", "end of the index map");
  return map;
}

Space parse_space(Scanner& line) {
  Space space;
  line.expect("space", "start of a kernel");
  int bars = 0;
  while (line.accept(" ")) {
    const size_t start = line.position();
    if (line.accept("|")) {
      if (bars == 0) space.outer = space.rank();
      if (bars == 1) space.reduced = space.rank() - space.outer;
      if (bars == 1 && space.reduced == 0) line.fail_at(start, "a reduced dimension between the bars");
      if (++bars > 2) line.fail_at(start, "no more than two bars");
      continue;
    }
    if (space.rank() == kMaxDims) line.fail_at(start, "no more than 8 dimensions");
    if (line.numbered("d", "a dimension", kMaxDims) != space.rank())
      line.fail_at(start, "d" + std::to_string(space.rank()) + ", the dimensions in order");
    space.extents.emplace_back();
    if (line.accept("=")) space.extents.back() = line.number("the extent of the dimension", kMaxExtent);
  }
  if (bars == 1) line.fail("' |', the second bar");
  if (bars == 0) space.outer = space.rank();
  line.expect_end();
  return space;
}

RuntimeAxes parse_axes(Scanner& line) {
  RuntimeAxes axes;
  line.expect("axes 0 ", "the axes, which are the node's input 0");
  axes.type = line.type("the type of the axes");
  line.expect(" [", "before the number of axes");
  axes.scalar = line.accept("]");
  if (!axes.scalar) {
    if (!line.accept("?")) axes.count = line.number("the number of axes, or '?'", kMaxDims);
    line.expect("]", "after the number of axes");
    axes.noop = line.accept(" noop");
  } else {
    axes.count = 1;
  }
  do {
    line.expect(" ", "before a dimension of the space");
    axes.dims.push_back(line.numbered("d", "a dimension of the space", kMaxDims - 1));
  } while (!line.at_end());
  return axes;
}

Roll parse_roll(Scanner& line, size_t index) {
  Roll roll;
  const size_t start = line.position();
  if (line.numbered("r", "a roll", kMaxRolls) != static_cast<int>(index))
    line.fail_at(start, "r" + std::to_string(index) + ", the rolls in order");
  line.expect(" = roll ", "after the roll");
  roll.shift = line.number("how far it rolls", kMaxExtent);
  do {
    line.expect(" ", "before a dimension of the roll");
    roll.dims.push_back(line.numbered("d", "a dimension of the space", kMaxDims - 1));
  } while (!line.at_end());
  return roll;
}

// The flags of a scan or an argument, in the only order in which they may stand; each is followed by a space.
const char* parse_flags(Scanner& line, Statement& statement) {
  if (is_argument(statement.op)) {
    statement.last = line.accept("last ");
    return statement.last ? "the type of the value" : "'last' or the type of the value";
  }
  if (!is_scan(statement.op)) return "the type of the value";
  statement.exclusive = line.accept("exclusive ");
  statement.reverse = line.accept("reverse ");
  if (statement.reverse) return "the type of the value";
  return statement.exclusive ? "'reverse' or the type of the value" : "'exclusive', 'reverse' or the type of the value";
}

void parse_operation(Scanner& line, Statement& statement, int index) {
  const std::string_view name = line.word("an operation");
  if (!find_op(name, &statement.op))
    fail_at_line(line.line_number(),
                 quoted(name) + " is no operation of the language (input, const, cast or a primitive)");
  line.expect(" ", "after the operation");
  if (statement.op == Op::input) {
    statement.tensor = static_cast<int>(line.number("the number of the input", kMaxTensors - 1));
    line.expect(" ", "after the number of the input");
    statement.storage = line.type("the type of the input");
    statement.type = is_16bit_float(statement.storage) ? Type::f32 : statement.storage;
    line.expect(" ", "after the type of the input");
    statement.map = parse_map(line);
    return;
  }
  const char* const what = parse_flags(line, statement);
  statement.type = line.type(what);
  if (statement.op == Op::constant) {
    line.expect(" ", "after the type of the constant");
    statement.literal = parse_literal(line, statement.type);
    return;
  }
  statement.operand_count = op_info(statement.op).arity;
  for (int i = 0; i < statement.operand_count; ++i) {
    line.expect(
        " ", ("before an operand; " + std::string(name) + " takes " + std::to_string(statement.operand_count)).c_str());
    const size_t start = line.position();
    statement.operands[i] = line.numbered("%", "an operand", kMaxStatements - 1);
    if (statement.operands[i] >= index)
      line.fail_at(start, "an operand that is defined on an earlier line of this kernel");
  }
}

Statement parse_statement(Scanner& line, size_t index) {
  Statement statement;
  const size_t start = line.position();
  if (line.numbered("%", "a value", kMaxStatements) != static_cast<int>(index))
    line.fail_at(start, "%" + std::to_string(index) + ", the values in order");
  line.expect(" = ", "after the value");
  parse_operation(line, statement, static_cast<int>(index));
  line.expect_end();
  return statement;
}

Output parse_output(Scanner& line, size_t values) {
  Output output;
  line.expect("output ", "start of an output");
  output.tensor = static_cast<int>(line.number("the number of the output", kMaxTensors - 1));
  line.expect(" ", "after the number of the output");
  output.storage = line.type("the type of the output");
  line.expect(" ", "after the type of the output");
  output.squeezed = line.accept("squeezed ");
  output.map = parse_map(line);
  line.expect(" ", "after the index map");
  const size_t start = line.position();
  output.value = line.numbered("%", "the value to store", kMaxStatements - 1);
  if (output.value >= static_cast<int>(values)) line.fail_at(start, "a value of this kernel");
  line.expect_end();
  return output;
}

void parse_line(Scanner& line, Program& program, ProgramLines& lines) {
  if (line.peek("space")) {
    if (!program.kernels.empty() && program.kernels.back().outputs.empty())
      line.fail("an output before the next kernel");
    if (program.kernels.size() == kMaxKernels) line.fail("no more than 16 kernels");
    Kernel kernel;
    kernel.space = parse_space(line);
    program.kernels.push_back(std::move(kernel));
    lines.push_back({line.line_number()});
    return;
  }
  if (program.kernels.empty()) line.fail("'space', the start of a kernel");
  Kernel& kernel = program.kernels.back();
  if (line.peek("axes")) {
    if (kernel.axes || !kernel.statements.empty() || !kernel.outputs.empty() || !kernel.space.rolls.empty())
      line.fail("axes behind the space only");
    kernel.axes = parse_axes(line);
  } else if (line.peek("r")) {
    if (!kernel.statements.empty() || !kernel.outputs.empty()) line.fail("a roll before the statements");
    if (kernel.space.rolls.size() == kMaxRolls) line.fail("no more than 8 rolls in a kernel");
    kernel.space.rolls.push_back(parse_roll(line, kernel.space.rolls.size()));
  } else if (line.peek("%")) {
    if (!kernel.outputs.empty()) line.fail("an output or a new kernel after an output");
    if (kernel.statements.size() == kMaxStatements) line.fail("no more than 1024 statements in a kernel");
    kernel.statements.push_back(parse_statement(line, kernel.statements.size()));
  } else if (line.peek("output ")) {
    kernel.outputs.push_back(parse_output(line, kernel.statements.size()));
  } else {
    line.fail("'%' (a statement), 'output' or 'space'");
  }
}

}  // namespace

std::shared_ptr<const Program> parse_program(std::string_view text) {
  if (text.size() > kMaxText)
    throw ProgramError("program: " + std::to_string(text.size()) + " bytes; at most 65536 are read");
  auto program = std::make_shared<Program>();
  program->text = std::string(text);
  ProgramLines lines;
  int number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    Scanner line(text.substr(0, end), ++number);
    if (end == std::string_view::npos) fail_at_line(number, "the line does not end with a newline");
    text.remove_prefix(end + 1);
    if (number == 1) {
      line.expect("onnxfuse 1", "the name and version of the language");
      line.expect_end();
    } else {
      parse_line(line, *program, lines);
    }
  }
  if (program->kernels.empty()) throw ProgramError("program: expected 'onnxfuse 1' and at least one kernel");
  if (program->kernels.back().outputs.empty()) fail_at_line(number, "the kernel has no output");
  verify(*program, lines);
  return program;
}

}  // namespace onnxfuse
