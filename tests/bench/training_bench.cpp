// Time of complete training steps (forward, backward, reduction, clipping, AdamW) of a GPT-2 on
// this rank count, after a warm-up step.
//   [mpirun -np N] bench.training [--layers 12 --width 768 --heads 12 --vocabulary 50257 --rows 4
//   --length 256 --dtype fp32 --stage 0 --steps 7]
// --rows is the global batch: it is dealt over the ranks. Prints one JSON line: median seconds of a
// step and tokens per second.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "gpt2_flags.hpp"
#include "tessera/comm/base/collectives.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/memory/runtime.hpp"
#include "tessera/model/decoder/causal_lm.hpp"
#include "tessera/model/families/registry.hpp"
#include "tessera/topology/mpi_session.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace {

using namespace tessera;

bench::Flags const defaults{{"layers", "12"},        {"width", "768"}, {"heads", "12"},
                            {"vocabulary", "50257"}, {"rows", "4"},    {"length", "256"},
                            {"dtype", "fp32"},       {"stage", "0"},   {"steps", "7"}};

}  // namespace

int main(int argc, char** argv) {
  topology::MpiSession session(argc, argv);
  auto const flags = bench::read_flags(argc, argv, defaults);
  auto const number = [&](char const* name) { return bench::number(flags, name); };
  memory::Runtime const runtime({topology::cores_of_rank(session), -1});
  auto const comm = comm::make_mpi(session, std::chrono::minutes(5));
  auto const compute = memory::make_inline_queue("compute");
  Dtype const dtype = dtype_from_name(flags.at("dtype"));
  auto const model = model::make_model(bench::gpt2_config(flags), dtype);

  zero::EngineConfig config;
  config.partition = zero::partition_of(static_cast<int>(number("stage")));
  config.dtype = config.communication_dtype = dtype;
  config.max_grad_norm = 1.0;
  auto const engine = zero::make_engine(config, model->units(), *comm, *compute);
  engine->initialize(
      [&](memory::UnitIndex u, int p, std::int64_t first, std::int64_t n, float* out) {
        model::initialize_parameter(
            model->units()[static_cast<std::size_t>(u)].parameters[static_cast<std::size_t>(p)], 1,
            first, n, out);
      });

  std::int64_t const rows = number("rows") / comm->size(), length = number("length");
  auto const tokens = bench::random_tokens(rows * length, model->vocabulary_size(), comm->rank());
  model::Batch const batch{tokens.data(), rows, length, comm->rank() * rows};
  std::vector<double> seconds;
  double loss = 0.0;
  for (std::int64_t step = 0; step <= number("steps"); ++step) {
    comm->barrier();
    auto const start = std::chrono::steady_clock::now();
    model::PassSettings settings;
    settings.step = static_cast<std::uint64_t>(step);
    settings.gradient_scale = static_cast<float>(
        engine->gradient_scale() / static_cast<double>(number("rows") * (length - 1)));
    engine->begin_step();
    engine->begin_micro_step(0, 1);
    loss = model->train(batch, settings, *engine, *compute).value();
    engine->finish_step(1e-4);
    loss = comm::all_reduce_value(*comm, loss, comm::ReduceOp::sum) /
           static_cast<double>(number("rows") * (length - 1));
    if (step > 0)
      seconds.push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(seconds.begin(), seconds.end());
  double const median = seconds[seconds.size() / 2];
  auto const memory = engine->memory();
  if (comm->rank() == 0)
    std::printf(
        "{\"bench\": \"training\", \"ranks\": %d, \"threads\": %d, \"stage\": %s, \"dtype\": "
        "\"%s\", \"seconds\": %.5f, \"fastest\": %.5f, "
        "\"tokens_per_second\": %.2f, \"loss\": %.5f, \"state_bytes\": %zu, \"formula_bytes\": "
        "%zu}\n",
        comm->size(), memory::Runtime::threads(), flags.at("stage").c_str(),
        flags.at("dtype").c_str(), median, seconds.front(),
        static_cast<double>(number("rows") * length) / median, loss,
        memory.weights + memory.gradients + memory.master_weights + memory.optimizer_state,
        memory.formula);
  return 0;
}
