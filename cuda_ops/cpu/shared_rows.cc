#include "shared_rows.h"

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "task.h"

namespace onnxfuse::cpu {
namespace {

constexpr int64_t kScannedTiles = 64;  // of a part: it is read twice, so it should stay in the second-level cache

int64_t parts_of_row(const KernelPlan& plan) {
  const int64_t tasks = worthwhile_tasks(plan.item_cost, plan.tiles());
  return plan.scans.empty() ? tasks : std::max(tasks, (plan.tiles() + kScannedTiles - 1) / kScannedTiles);
}

size_t total_words(const KernelPlan& plan) {
  size_t words = 0;
  for (const Accumulator& a : plan.accumulators) words += a.words;
  return words;
}

// Pass by pass, each row in as many parts; how many depends on the plan only. After a pass, the accumulators of a row's
// parts are joined in order. A scan goes on where the part before has ended.
class SharedRows {
 public:
  SharedRows(const KernelPlan& plan, Tensors inputs, Tensors outputs)
      : plan_(plan),
        inputs_(inputs),
        outputs_(outputs),
        parts_(parts_of_row(plan)),
        words_(total_words(plan)),
        found_(static_cast<size_t>(plan.items * parts_) * words_),
        joined_(static_cast<size_t>(plan.items) * words_) {}

  void run(RunContext& context) {
    for (size_t pass = 0; pass < plan_.passes.size(); ++pass) {
      if (static_cast<int>(pass) == plan_.totals_pass) {
        scan(++pass, context);
        continue;
      }
      context.parallel_for(static_cast<size_t>(plan_.items * parts_), [&](size_t i) {
        const int64_t number = static_cast<int64_t>(i);
        run_part(pass, number / parts_, number % parts_);
      });
      for (int64_t item = 0; item < plan_.items; ++item) join(pass, item);
    }
    for (int64_t item = 0; item < plan_.items; ++item) {
      Task task(plan_, inputs_, outputs_);
      run_before(task, plan_.passes.size(), item, true);
    }
  }

 private:
  uint64_t* found(int64_t item, int64_t part) {
    return found_.data() + static_cast<size_t>(item * parts_ + part) * words_;
  }
  uint64_t* joined(int64_t item) { return joined_.data() + static_cast<size_t>(item) * words_; }

  // Of an item's accumulators of a kind: an item may be a block of columns that is shorter than others.
  size_t number(const Accumulator& a, int64_t item) const {
    const Layout& l = plan_.layout;
    if (a.number == 1 || l.item_is_point()) return a.number;
    return static_cast<size_t>(std::min(l.block, l.tile_extent - item % l.blocks * l.block) * l.inner);
  }

  // visit(accumulator, where it stands among the words) for those of a pass
  template <class Visit>
  void visit_accumulators(size_t pass, const Visit& visit) const {
    size_t word = 0;
    for (const Accumulator& a : plan_.accumulators) {
      if (a.pass == pass) visit(a, word);
      word += a.words;
    }
  }

  // Everything that comes before a pass, with the results of the passes before.
  void run_before(Task& task, size_t pass, int64_t item, bool lead) {
    task.enter(item);
    for (size_t p = 0; p <= pass; ++p) {
      task.run_item_code(p, lead && p == pass);
      if (p == pass) break;
      visit_accumulators(p, [&](const Accumulator& a, size_t word) {
        std::memcpy(task.at(a.reg), joined(item) + word, a.words * sizeof(uint64_t));
      });
    }
  }

  void run_tiles(Task& task, size_t pass, int64_t part) {
    task.run_tiles(pass, plan_.tiles() * part / parts_, plan_.tiles() * (part + 1) / parts_);
  }

  void run_part(size_t pass, int64_t item, int64_t part) {
    Task task(plan_, inputs_, outputs_);
    run_before(task, pass, item, part == 0);
    run_tiles(task, pass, part);
    visit_accumulators(pass, [&](const Accumulator& a, size_t word) {
      std::memcpy(found(item, part) + word, task.at(a.reg), a.words * sizeof(uint64_t));
    });
  }

  void join(size_t pass, int64_t item) {
    visit_accumulators(pass, [&](const Accumulator& a, size_t word) {
      std::memcpy(joined(item) + word, found(item, 0) + word, a.words * sizeof(uint64_t));
      for (int64_t part = 1; part < parts_; ++part)
        a.merge(joined(item) + word, found(item, part) + word, nullptr, nullptr, number(a, item));
    });
  }

  // Parts are taken in order, so that the part before is done or being worked on. Where it is done, one goes on from
  // its end; else one finds in the meantime what one's own part comes to, and tells the next before scanning. Both come
  // to the same bits, since a part is scanned on its own and then joined with what was before.
  void scan(size_t pass, RunContext& context) {
    const size_t parts = static_cast<size_t>(plan_.items * parts_), scans = plan_.scans.size();
    std::vector<uint64_t> before(parts * scans);  // of what comes after a part: what is before it
    std::vector<std::atomic<bool>> known(parts);  // whether that is there
    for (std::atomic<bool>& k : known) k.store(false, std::memory_order_relaxed);
    std::atomic<size_t> next{0};
    std::atomic<bool> failed{false};
    context.parallel_for(parts, [&](size_t) {
      try {
        const size_t number = next.fetch_add(1, std::memory_order_relaxed), rows = static_cast<size_t>(plan_.items);
        const int64_t item = static_cast<int64_t>(number % rows), part = static_cast<int64_t>(number / rows);
        const std::atomic<bool>* const previous = part > 0 ? &known[number - rows] : nullptr;
        const uint64_t* const start = part > 0 ? before.data() + (number - rows) * scans : nullptr;
        uint64_t* const end = before.data() + number * scans;
        Task task(plan_, inputs_, outputs_);
        bool told = false;
        if (previous != nullptr && !previous->load(std::memory_order_acquire)) {
          run_before(task, pass - 1, item, false);
          run_tiles(task, pass - 1, part);
          while (!previous->load(std::memory_order_acquire)) {
            if (failed.load(std::memory_order_relaxed)) throw std::runtime_error("another part of a scan failed");
            std::this_thread::yield();
          }
          for (size_t s = 0; s < scans; ++s)
            plan_.scans[s].join(end + s, start + s, task.at(plan_.scans[s].total) + sizeof(uint64_t), nullptr, 1);
          known[number].store(told = true, std::memory_order_release);
        }
        run_before(task, pass, item, part == 0);
        for (size_t s = 0; start != nullptr && s < scans; ++s)
          std::memcpy(task.at(plan_.scans[s].state), start + s, sizeof(uint64_t));
        run_tiles(task, pass, part);
        if (told) return;
        for (size_t s = 0; s < scans; ++s) {
          const char* state = task.at(plan_.scans[s].state);
          plan_.scans[s].join(end + s, state, state + sizeof(uint64_t), nullptr, 1);
        }
        known[number].store(true, std::memory_order_release);
      } catch (...) {
        failed.store(true, std::memory_order_relaxed);
        throw;
      }
    });
  }

  const KernelPlan& plan_;
  Tensors inputs_;
  Tensors outputs_;
  const int64_t parts_;
  const size_t words_;
  std::vector<uint64_t> found_, joined_;
};

}  // namespace

void run_shared_rows(const KernelPlan& plan, Tensors inputs, Tensors outputs, RunContext& context) {
  SharedRows(plan, inputs, outputs).run(context);
}

}  // namespace onnxfuse::cpu
