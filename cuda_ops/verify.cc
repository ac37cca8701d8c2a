#include "verify.h"

#include <algorithm>
#include <string>

#include "program_limits.h"
#include "scanner.h"
#include "stores.h"
#include "table.h"

namespace onnxfuse {
namespace {

std::string value_name(int value) { return "%" + std::to_string(value); }

std::string type_list(uint32_t mask) {
  std::string list;
  for (unsigned t = 0; t <= static_cast<unsigned>(Type::boolean); ++t)
    if (mask >> t & 1) list += (list.empty() ? "" : " ") + std::string(type_name(static_cast<Type>(t)));
  return list;
}

std::string dim_list(uint32_t dims) {
  std::string list;
  for (int d = 0; d < kMaxDims; ++d)
    if (dims >> d & 1) list += (list.empty() ? "d" : ", d") + std::to_string(d);
  return list;
}

// The dimensions in a map; each must be one of the space.
uint32_t map_dims(const IndexMap& map, const Space& space, int line) {
  uint32_t dims = 0;
  for (const MapEntry& entry : map) {
    for (const AffineTerm& term : entry.terms) {
      const int roll = term.dim - kFirstRoll;
      if (roll >= static_cast<int>(space.rolls.size()))
        fail_at_line(line, "r" + std::to_string(roll) + " is no roll of this kernel, which has " +
                               std::to_string(space.rolls.size()));
      if (roll < 0 && term.dim >= space.rank())
        fail_at_line(line, "d" + std::to_string(term.dim) + " is no dimension of this kernel's space, which has " +
                               std::to_string(space.rank()));
      dims |= space.dims_of(term.dim);
    }
  }
  return dims;
}

// Checks one use of the node's tensor against the others.
void use_tensor(std::vector<TensorInfo>& tensors, std::vector<bool>& used, int tensor, Type type, size_t rank, int line,
                const char* kind) {
  const size_t index = static_cast<size_t>(tensor);
  if (used.size() <= index) {
    used.resize(index + 1, false);
    tensors.resize(index + 1);
  }
  TensorInfo& info = tensors[index];
  const int signed_rank = static_cast<int>(rank);
  if (used[index] && (info.type != type || info.rank != signed_rank))
    fail_at_line(line, std::string(kind) + " " + std::to_string(tensor) + " is " + type_name(type) + " of rank " +
                           std::to_string(rank) + " here, but " + type_name(info.type) + " of rank " +
                           std::to_string(info.rank) + " before");
  used[index] = true;
  info = {type, signed_rank};
}

void require_no_gaps(const std::vector<bool>& used, const char* kind) {
  for (size_t i = 0; i < used.size(); ++i)
    if (!used[i])
      throw ProgramError(std::string("program: ") + kind + " " + std::to_string(i) + " is missing; " + kind +
                         "s are numbered without gaps");
}

class KernelVerifier {
 public:
  explicit KernelVerifier(Kernel& kernel) : kernel_(kernel) {}

  void axes(const RuntimeAxes& axes, int line) const {
    const Space& space = kernel_.space;
    if (axes.type != Type::i32 && axes.type != Type::i64)
      fail_at_line(line, std::string("axes are i32 or i64, not ") + type_name(axes.type));
    if (space.reduced > 0)
      fail_at_line(line, "the space of a kernel with axes has no bars: the axes say what is reduced");
    uint32_t seen = 0;
    for (const int d : axes.dims) {
      if (d >= space.rank() || (seen >> d & 1) != 0)
        fail_at_line(line, "axes name each dimension of the space once, and no other; d" + std::to_string(d) +
                               (d >= space.rank() ? " is none" : " stands twice"));
      seen |= 1u << d;
    }
    if (seen != all_dims())
      fail_at_line(line, "axes name each dimension of the space; " + dim_list(all_dims() & ~seen) + " is missing");
    if (axes.count && (*axes.count < 1 || *axes.count > space.rank()))
      fail_at_line(
          line, std::to_string(*axes.count) + " axes, of a space of " + std::to_string(space.rank()) + " dimensions");
    if (axes.count && axes.noop) fail_at_line(line, "'noop' says what no axes mean, and there always are some");
  }

  void roll(Roll& roll, int line) {
    const Space& space = kernel_.space;
    if (kernel_.axes) fail_at_line(line, "a kernel with axes has no rolls");
    roll.points = 1;
    uint32_t seen = 0;
    for (const int d : roll.dims) {
      if ((seen >> d & 1) != 0) fail_at_line(line, "d" + std::to_string(d) + " stands twice in a roll");
      seen |= 1u << d;
      const bool known = d < space.rank() && space.extents[static_cast<size_t>(d)].has_value();
      if (!known || (space.reduced_mask() >> d & 1) != 0)
        fail_at_line(line, "a roll runs over dimensions of known extent that are not reduced; d" + std::to_string(d) +
                               " is none");
      const int64_t extent = *space.extents[static_cast<size_t>(d)];
      if (extent != 0 && roll.points > kMaxExtent / extent) fail_at_line(line, "a roll has more than 2^48-1 points");
      roll.points *= extent;
    }
    if (roll.shift < 1 || roll.shift >= roll.points)
      fail_at_line(line, "a roll of " + std::to_string(roll.points) + " points goes by 1 to one less, not by " +
                             std::to_string(roll.shift));
    roll_parts_ *= 2 * static_cast<int64_t>(roll.dims.size());
    if (roll_parts_ > kMaxRollParts) fail_at_line(line, "the rolls cut the space into more than 1024 parts");
  }

  void statement(Statement& s, int line) {
    if (s.op == Op::input) return input(s, line);
    if (s.op == Op::constant) return;
    types(s, line);
    for (int i = 0; i < s.operand_count; ++i) {
      s.dims |= operand(s, i).dims;
      s.varying |= operand(s, i).varying;
      s.scanned = s.scanned || operand(s, i).scanned;
    }
    if (is_reduction(s.op) || is_scan(s.op)) collective(s, line);
  }

  void output(const Output& o, int line) const {
    const Statement& value = kernel_.statements[static_cast<size_t>(o.value)];
    const bool rounds = value.type == Type::f32 && is_16bit_float(o.storage);
    if (value.type != o.storage && !rounds)
      fail_at_line(line, value_name(o.value) + " is " + type_name(value.type) + " and cannot be stored as " +
                             type_name(o.storage) + " without a cast");
    const uint32_t missing = value.dims & ~map_dims(o.map, kernel_.space, line);
    if (missing != 0)
      fail_at_line(line, value_name(o.value) + " depends on " + dim_list(missing) + ", which the output's map lacks");
    uint32_t seen = 0;
    if (o.squeezed && !kernel_.axes) fail_at_line(line, "only a kernel with axes has squeezed outputs");
    if (kernel_.axes) complete(o, *kernel_.axes, value, line);
    for (const MapEntry& entry : o.map) {
      extent(entry, line);
      for (const AffineTerm& term : entry.terms) {
        const uint32_t dims = kernel_.space.dims_of(term.dim);
        if ((dims & seen) != 0) fail_at_line(line, dim_list(dims & seen) + " stands twice in the output's map");
        seen |= dims;
      }
    }
  }

  void extents(int line) const {
    for (int d = 0; d < kernel_.space.rank(); ++d)
      if (!kernel_.space.extents[static_cast<size_t>(d)] && (plain_ >> d & 1) == 0)
        fail_at_line(line, "the extent of d" + std::to_string(d) + " is not known: write d" + std::to_string(d) +
                               "=N, or let an input have it alone in its map");
  }

 private:
  const Statement& operand(const Statement& s, int i) const {
    return kernel_.statements[static_cast<size_t>(s.operands[i])];
  }

  uint32_t all_dims() const { return (1u << kernel_.space.rank()) - 1; }

  // An output of a kernel with axes: which of its dimensions are reduced shows with a run.
  void complete(const Output& o, const RuntimeAxes& axes, const Statement& value, int line) const {
    bool plain = o.map.size() == axes.dims.size(), in_order = plain;
    for (size_t i = 0; i < o.map.size() && plain; ++i) {
      plain = o.map[i].plain_dim() >= 0 && !o.map[i].extent;
      in_order = in_order && o.map[i].plain_dim() == axes.dims[i];
    }
    if (!plain) fail_at_line(line, "an output of a kernel with axes has each dimension of the space alone in its map");
    if (value.dims != all_dims())
      fail_at_line(line, "an output of a kernel with axes depends on each dimension of the space; " +
                             value_name(o.value) + " does not on " + dim_list(all_dims() & ~value.dims));
    if (!o.squeezed) return;
    if (!axes.count) fail_at_line(line, "a squeezed output needs the number of axes; write it in place of '?'");
    if (!in_order) fail_at_line(line, "the dimensions of a squeezed output stand in the order of the axes");
    if (value.varying != 0)
      fail_at_line(line, value_name(o.value) + " varies along " + dim_list(value.varying) +
                             ", and cannot be stored without what is reduced");
  }

  // A reduction or a scan over axes that arrive with a run: each dimension may be reduced.
  void collective_over_axes(Statement& s, const RuntimeAxes& axes, int line) const {
    const std::string name = op_name(s.op);
    if (is_argument(s.op)) fail_at_line(line, name + " takes no axes from a run");
    if (is_scan(s.op) && axes.count != 1) fail_at_line(line, name + " goes along one axis; there may be several");
    if (operand(s, 0).varying != all_dims())
      fail_at_line(line, name + " needs an operand that varies along each dimension of the space; " +
                             value_name(s.operands[0]) + " does not along " +
                             dim_list(all_dims() & ~operand(s, 0).varying));
    if (s.scanned)
      fail_at_line(line, name + " needs an operand that depends on no scan; " + value_name(s.operands[0]) + " does");
    s.scanned = is_scan(s.op);
    s.varying = s.scanned ? all_dims() : 0;
  }

  // A reduction or a scan: its operand is a value of the point that depends on no scan.
  void collective(Statement& s, int line) const {
    if (kernel_.axes) return collective_over_axes(s, *kernel_.axes, line);
    const uint32_t reduced = kernel_.space.reduced_mask();
    if ((s.dims & reduced) == 0)
      fail_at_line(line, std::string(op_name(s.op)) + " needs an operand that depends on a reduced dimension; " +
                             value_name(s.operands[0]) + " does not");
    if (s.scanned)
      fail_at_line(line, std::string(op_name(s.op)) + " needs an operand that depends on no scan; " +
                             value_name(s.operands[0]) + " does");
    s.scanned = is_scan(s.op);
    s.dims = s.scanned ? s.dims | reduced : s.dims & ~reduced;
  }

  // An output's extent is written exactly where it is not that of the entry itself.
  void extent(const MapEntry& entry, int line) const {
    const int d = entry.plain_dim();
    const bool zero = entry.terms.empty() && entry.offset == 0;
    int64_t times = 1;
    if (!entry.extent && d < 0 && !zero && counted_dim(entry, kernel_.space, &times) < 0)
      fail_at_line(line, "an index of an output other than 0 or a plain dimension needs ':' and the extent");
    if (entry.extent &&
        (zero ? entry.extent == 1 : d >= 0 && entry.extent == kernel_.space.extents[static_cast<size_t>(d)]))
      fail_at_line(line, "the extent " + std::to_string(*entry.extent) + " is that of the index itself; leave it out");
  }

  void input(Statement& s, int line) {
    s.dims = s.varying = map_dims(s.map, kernel_.space, line);
    if (kernel_.axes && s.tensor == 0) fail_at_line(line, "input 0 holds the axes, and is not read by a statement");
    for (const MapEntry& entry : s.map) {
      input_extent(entry, line);
      int64_t times = 1;
      const int counted = counted_dim(entry, kernel_.space, &times);
      if (entry.plain_dim() >= 0) plain_ |= 1u << entry.plain_dim();
      if (counted >= 0) plain_ |= 1u << counted;
    }
  }

  // An input's extent is written only where a plain dimension reads the first part of a longer one.
  void input_extent(const MapEntry& entry, int line) const {
    if (!entry.extent) return;
    const int d = entry.plain_dim();
    const auto known = d >= 0 ? kernel_.space.extents[static_cast<size_t>(d)] : std::nullopt;
    if (!known || *entry.extent <= *known)
      fail_at_line(line,
                   "an extent (':' and a number) stands in the map of an input only where a plain dimension of known "
                   "extent reads the first part of a longer one");
  }

  void types(const Statement& s, int line) const {
    const OpInfo& info = op_info(s.op);
    const std::string name = info.name;
    if (is_16bit_float(s.type))
      fail_at_line(line, std::string("a value cannot be ") + type_name(s.type) + ", a type of tensors only; " +
                             "compute in f32 and use round_" + type_name(s.type) + " to round");
    const int first = s.op == Op::op_where ? 1 : 0;
    if (first == 1 && operand(s, 0).type != Type::boolean)
      fail_at_line(line, "the first operand of where must be bool; " + value_name(s.operands[0]) + " is " +
                             type_name(operand(s, 0).type));
    const Type type = operand(s, first).type;
    if ((info.types & type_bit(type)) == 0)
      fail_at_line(line, name + " takes " + type_list(info.types) + "; " + value_name(s.operands[first]) + " is " +
                             type_name(type));
    for (int i = first + 1; i < s.operand_count; ++i)
      if (operand(s, i).type != type)
        fail_at_line(line, name + " needs operands of one type; " + value_name(s.operands[first]) + " is " +
                               type_name(type) + " and " + value_name(s.operands[i]) + " is " +
                               type_name(operand(s, i).type));
    if (s.op == Op::cast && s.type == type)
      fail_at_line(line, value_name(s.operands[0]) + " is " + type_name(type) + " already; use it without the cast");
    const Type result = info.result_bool ? Type::boolean : info.kind == OpKind::argument ? Type::i64 : type;
    if (s.op != Op::cast && s.type != result)
      fail_at_line(line,
                   name + " of " + type_name(type) + " gives " + type_name(result) + ", not " + type_name(s.type));
  }

  Kernel& kernel_;
  int64_t roll_parts_ = 1;
  uint32_t plain_ = 0;  // dimensions whose extent the map of an input shows
};

}  // namespace

void verify(Program& program, const ProgramLines& lines) {
  std::vector<bool> inputs;
  std::vector<bool> outputs;
  for (size_t k = 0; k < program.kernels.size(); ++k) {
    Kernel& kernel = program.kernels[k];
    KernelVerifier verifier(kernel);
    int line = lines[k].space;
    if (kernel.axes) {
      if (program.kernels.size() > 1) fail_at_line(line, "a kernel with axes is the program's only one");
      verifier.axes(*kernel.axes, ++line);
      use_tensor(program.inputs, inputs, 0, kernel.axes->type, kernel.axes->scalar ? 0 : 1, line, "input");
    }
    for (Roll& roll : kernel.space.rolls) verifier.roll(roll, ++line);
    for (Statement& s : kernel.statements) {
      verifier.statement(s, ++line);
      if (s.op == Op::input) use_tensor(program.inputs, inputs, s.tensor, s.storage, s.map.size(), line, "input");
    }
    for (const Output& o : kernel.outputs) {
      verifier.output(o, ++line);
      const size_t left_out = o.squeezed ? static_cast<size_t>(kernel.axes->count.value_or(0)) : 0;
      use_tensor(program.outputs, outputs, o.tensor, o.storage, o.map.size() - left_out, line, "output");
    }
    verifier.extents(lines[k].space);
  }
  require_no_gaps(inputs, "input");
  require_no_gaps(outputs, "output");
}

}  // namespace onnxfuse
