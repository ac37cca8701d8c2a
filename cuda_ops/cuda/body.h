// Writes one __global__ function: index arithmetic, the passes over the reduced dimensions, the stores.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "accesses.h"
#include "expression.h"
#include "schedule.h"
#include "writer.h"

namespace onnxfuse::cuda {

std::string scanner(Op op);  // the struct that combines a scan's operands

class BodyWriter {
 public:
  BodyWriter(const Kernel& kernel, const Plan& plan, const Stages& stages, const Schedule& schedule,
             const Accesses& accesses);
  // Passes first to last; the results of earlier ones are taken from scratch memory, where a pass that is not the
  // storing one leaves its own if it is the last.
  std::string write(const std::string& name, int first, int last);
  // The last function, where blocks take tiles of the rows in turns, and the bytes of shared memory that a launch of it
  // asks for.
  std::string write_tiles(const std::string& name);
  int staged_bytes_of_block() const;
  // The last function, where clusters take rows in turns, and the shared memory that it needs of its launch.
  std::string write_rows(const std::string& name);
  uint32_t dynamic_shared_bytes() const;
  // Between the two passes over the pieces of long scans: from the sums of the pieces to what comes before each.
  std::string write_prefixes(const std::string& name);
  // All passes as a device function of a kernel that several parts share: `block` is the number of the block among
  // those of the part, `shared` has room for shared_bytes().
  std::string write_part(const std::string& name);
  size_t shared_bytes() const;

 private:
  void write_passes(int first, int last);
  bool row() const { return schedule_.kind == ScheduleKind::row; }
  bool elementwise() const { return schedule_.kind == ScheduleKind::elementwise; }
  const Statement& statement(int i) const { return kernel_.statements[i]; }
  std::string lanes() const { return std::to_string(schedule_.lanes); }
  std::string slots() const { return std::to_string(schedule_.slots); }
  std::string bytes(const PlanAccess& access) const;    // of a vector
  std::string element(const PlanAccess& access) const;  // type of its values in code

  bool scans() const { return !stages_.scans.empty(); }
  bool looped(int pass) const;  // the pass goes over the reduced dimensions in a loop of its own

  void write_prologue();
  void write_column(const std::string& block);
  void write_length();
  void write_bases();
  std::vector<int> early_loads() const;  // those that come before all passes
  void write_early_loads() { write_loads(early_loads()); }
  void write_once(int level);  // values of scope once and lane that are known after `level` passes
  void write_once_input(int i);
  void write_lane_statement(int i);
  void write_denominator(int i, const std::string& type, const std::string& function, const std::string& prefix);

  void write_pass(int pass);
  std::vector<int> loads_of(int pass) const;
  std::vector<int> loads_ahead() const;  // those of the storing pass that come before its turn
  void write_loads(const std::vector<int>& inputs);
  void declare_loads(const std::vector<int>& inputs);
  void write_slot_loads(const std::vector<int>& inputs);
  std::vector<int> statements_of(int pass) const;  // of scope point: those that the pass computes or takes from earlier
  void write_point_statements(int pass);
  void write_point_stores();
  void write_row_stores();
  void open_slot(bool needed_offsets);
  void close_slot();
  bool guarded() const;

  void declare_shared();
  void declare_accumulators(int pass);
  void write_accumulation(int pass);
  void write_flush(int pass);
  void write_combination(int reduction);
  void write_row_combination(int reduction, const std::string& total);
  void write_reduced_parts(int reduction, const std::string& parts);
  void write_column_combination(int reduction, const std::string& total);
  void write_result(int reduction);
  bool shares_row_between_warps() const;
  bool joins_moments() const;
  bool joins_softmax() const;
  bool raises_exponentials() const;
  bool divides_raised(int i) const;
  bool joins(int pass) const { return pass < 2 && (joins_moments() || joins_softmax()); }
  void write_warp_result();
  void write_exchange();
  void write_exchanged();
  void write_partials(int pass);
  void read_partials(int pass);
  std::string partial_pointer(int reduction) const;
  size_t widest_total() const;  // bytes
  std::string accumulator_type(int reduction) const;
  std::string total_type(int reduction) const;
  bool lane_results() const { return !row() && stages_.scope[first_reduction_] == Scope::lane; }

  void declare_parts();
  void write_part_accumulation();
  void write_part_mask();
  void declare_runs();
  void write_scan(int i, const std::string& declaration);
  void write_scan_combination();
  void write_row_scans();
  void write_column_scans();
  void write_chunks(int last);
  void declare_totals(int last);
  void write_sums_of_piece();
  std::string pieces_of(int scan) const;
  std::string sum_of_piece(int scan) const;

  void write_sums_of_warps();
  void write_scans_of_tile();
  void write_befores(int scan, bool several_warps);
  void open_tile(const std::string& tile, const std::string& turn);
  void write_copies();
  void write_block_barrier();
  void declare_row_values();
  void write_row_values(const std::string& tile);
  void write_passes_of_tile(bool summing);
  using WriteScan =
      std::function<void(int, const std::string&, const std::string&, const std::string&, const std::string&)>;
  void each_scan(const WriteScan& write) const;
  void write_turns();
  void write_scouts();
  void write_clearing();
  void write_look_back();
  void write_giving();
  int columns() const { return schedule_.across() * schedule_.lanes; }  // of a block
  int staged_bytes_of_tiles() const;
  void declare_column_records();
  std::string column_record(int scan) const;
  std::string nodes_of_columns(int scan) const;
  void write_sums_of_columns();
  void write_scans_of_columns();
  void open_column(const std::string& tile);
  void write_column_look_back();
  void write_column_giving();
  std::string nodes_of(int scan, const std::string& tile) const;
  bool staged(int i) const;
  bool maskable() const;
  std::vector<int> staged_inputs() const;
  std::string staged_slot(int i) const;
  int tile_bytes(int i) const;

  // A variable of the present row that is needed when its results are stored.
  struct Held {
    std::string type, name, extents;
  };
  bool in_turns() const;
  bool staged_row(int i) const;
  bool staged_common(int i) const;
  std::vector<int> staged_inputs(bool common) const;
  void declare_slices();
  void declare_exchanges();
  void write_row_tiles(const std::string& turn);
  void write_row_copies(bool common);
  void write_common_loads(int pass);
  void write_copies_of(const std::string& row, const std::string& turn);
  int exchange_number(int reduction) const;
  std::string arrivals_of(int reduction) const;
  std::string exchanged(const std::string& array) const;
  void write_messages(int reduction, const std::string& array, const std::string& value, int size);
  void write_wait_for_messages(int reduction);
  void write_receipt(int pass);
  std::vector<Held> held_for_storing() const;
  void write_held(const std::vector<Held>& held, const std::string& from, const std::string& to);
  void write_taking();
  void write_storing(const std::vector<Held>& held);

  std::string operand(int i, Scope context) const;
  std::string expression(int i, Scope context) const;
  std::string one_plus(int i, Scope context) const;
  bool uses_denominator(int i) const;
  bool divides_vector(int i) const;
  bool divides_fast_alone(int divisor) const;

  const Kernel& kernel_;
  const Plan& plan_;
  const Stages& stages_;
  const Schedule& schedule_;
  const Accesses& accesses_;
  Writer out_;
  Approximable fast_;
  std::vector<bool> brought_;                             // by statement: constants that are parameters
  std::vector<bool> denominators_, scaled_denominators_;  // by statement: something is divided by it for every point
  bool vectors_ = false;  // the values of a point are elements of arrays, one for each lane
  int first_reduction_ = 0;
  bool reverse_ = false;                                     // all scans are
  bool storing_ = false;                                     // the pass that is being written stores
  std::string block_ = "blockIdx.x";                         // number of the block
  bool in_tiles_ = false;                                    // blocks take tiles in turns
  bool summing_ = false;                                     // what is written finds what a tile adds up to, no more
  bool masked_ = false;                                      // vectors beyond the end are computed and left out
  std::string split_ = "blockIdx.y", splits_ = "gridDim.y";  // number of the block's piece, and of all pieces of a row
  bool cluster_ready_ = false;                               // all blocks of the cluster are known to run
};

}  // namespace onnxfuse::cuda
