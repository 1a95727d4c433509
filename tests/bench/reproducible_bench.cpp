// Price of --reproducible world: training steps of a GPT-2 whose sums are one binary tree over
// ranks and micro-steps, in turns with steps whose sums are in the order of the ranks.
//   [mpirun -np N] bench.reproducible [--layers 4 --width 256 --heads 4 --vocabulary 4096 --rows 2
//   --length 128 --dtype fp32 --stage 2 --micro-steps 4 --rounds 9]
// --rows is the micro-batch of a rank. Prints one JSON line: median seconds of a step of each,
// their ratio, and the bytes that a rank sends in one.
#include <cstdio>
#include <string>
#include <vector>

#include "gpt2_flags.hpp"
#include "interleaved.hpp"
#include "recording_collectives.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/memory/runtime.hpp"
#include "tessera/model/decoder/causal_lm.hpp"
#include "tessera/model/families/registry.hpp"
#include "tessera/topology/mpi_session.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace {

using namespace tessera;
using bench::Flags;
using bench::number;

Flags const defaults{
    {"layers", "4"},   {"width", "256"},  {"heads", "4"}, {"vocabulary", "4096"}, {"rows", "2"},
    {"length", "128"}, {"dtype", "fp32"}, {"stage", "2"}, {"micro-steps", "4"},   {"rounds", "9"}};

/// A model and an engine over all ranks, with one order of sums.
class Run {
 public:
  Run(Flags const& flags, topology::MpiSession& session, zero::SumOrder order)
      : micro_steps_(static_cast<int>(number(flags, "micro-steps"))),
        rows_(number(flags, "rows")),
        length_(number(flags, "length")),
        comm_(comm::make_recording(comm::make_mpi(session, std::chrono::minutes(5)))),
        model_(model::make_model(bench::gpt2_config(flags), dtype_from_name(flags.at("dtype")))) {
    zero::EngineConfig config;
    config.partition = zero::partition_of(static_cast<int>(number(flags, "stage")));
    config.dtype = config.communication_dtype = dtype_from_name(flags.at("dtype"));
    config.accumulation_steps = micro_steps_;
    config.max_grad_norm = 1.0;
    config.sum_order = order;
    engine_ = zero::make_engine(config, model_->units(), *comm_, *compute_);
    engine_->initialize([&](memory::UnitIndex u, int p, std::int64_t first, std::int64_t n,
                            float* out) {
      model::initialize_parameter(
          model_->units()[position(u)].parameters[static_cast<std::size_t>(p)], 1, first, n, out);
    });
    tokens_ = bench::random_tokens(rows_ * length_, model_->vocabulary_size(), comm_->rank());
  }

  void step() {
    comm_->barrier();
    model::PassSettings settings;
    auto const predicted = rows_ * (length_ - 1) * micro_steps_ * comm_->size();
    settings.gradient_scale =
        static_cast<float>(engine_->gradient_scale() / static_cast<double>(predicted));
    engine_->begin_step();
    zero::StepValues values;
    for (int k = 0; k < micro_steps_; ++k) {
      engine_->begin_micro_step(k, micro_steps_);
      values.addends.push_back(model_
                                   ->train({tokens_.data(), rows_, length_, comm_->rank() * rows_},
                                           settings, *engine_, *compute_)
                                   .value());
    }
    (void)engine_->finish_step(1e-4, values);
  }

  /// Returns the bytes that one step sends.
  std::size_t bytes_sent() {
    comm_->clear();
    step();
    return comm_->bytes_sent();
  }
  int ranks() const { return comm_->size(); }
  bool is_root() const { return comm_->rank() == 0; }

 private:
  int micro_steps_;
  std::int64_t rows_, length_;
  std::unique_ptr<comm::RecordingCollectives> comm_;
  std::unique_ptr<memory::Queue> compute_ = memory::make_inline_queue("compute");
  std::unique_ptr<model::CausalLm> model_;
  std::unique_ptr<zero::Engine> engine_;
  std::vector<std::int32_t> tokens_;
};

}  // namespace

int main(int argc, char** argv) {
  topology::MpiSession session(argc, argv);
  auto const flags = bench::read_flags(argc, argv, defaults);
  memory::Runtime const runtime({topology::cores_of_rank(session), -1});
  Run of_ranks(flags, session, zero::SumOrder::ranks), tree(flags, session, zero::SumOrder::tree);
  auto const times = bench::interleaved({[&] { of_ranks.step(); }, [&] { tree.step(); }},
                                        static_cast<int>(number(flags, "rounds")));
  std::size_t const sent = of_ranks.bytes_sent(), sent_as_tree = tree.bytes_sent();
  if (tree.is_root())
    std::printf(
        "{\"bench\": \"reproducible\", \"ranks\": %d, \"threads\": %d, \"stage\": %s, \"dtype\": "
        "\"%s\", \"seconds_run\": %.5f, \"seconds_world\": %.5f, \"ratio\": %.4f, "
        "\"fastest_ratio\": %.4f, \"bytes_run\": %zu, \"bytes_world\": %zu}\n",
        tree.ranks(), memory::Runtime::threads(), flags.at("stage").c_str(),
        flags.at("dtype").c_str(), times[0].median, times[1].median,
        times[1].median / times[0].median, times[1].best / times[0].best, sent, sent_as_tree);
  return 0;
}
