// The optimizer on the CPU of a simulated device (--device_memory): what its link costs. One JSON
// line per measurement; the fastest of interleaved rounds.
//   bench.offload update ELEMENTS GB_PER_S [ROUNDS]
//     the host's AdamW with and without gradients and weights that are copied meanwhile
//   bench.offload train LAYERS WIDTH HEADS ROWS LENGTH STAGE [STEPS]
//     the share of a step after the end of its passes, in which the device waits for gradients on
//     the link, the host's update and returning weights; links of 16, 32 and 64 GB/s
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "interleaved.hpp"
#include "tessera/comm/compose/device_collectives.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/core/error.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/runtime.hpp"
#include "tessera/model/families/registry.hpp"
#include "tessera/optim/optimizer.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace tessera {
namespace {

constexpr std::size_t device_bytes = std::size_t{16} << 30;
constexpr std::chrono::minutes deadline{30};

void simulate(double gb_per_s) {
  memory::simulate_device({.memory_bytes = device_bytes, .link_bytes_per_second = 1e9 * gb_per_s});
}

/// fp32 gradients, master weights and both moments, and bf16 weights.
class Update {
 public:
  explicit Update(std::int64_t numel)
      : numel_(numel), worker_(memory::make_worker_queue("optimizer")) {
    for (auto* buffer : {&gradient_, &master_, &first_, &second_}) *buffer = make(4, pinned);
    weights_ = make(2, pinned);
    there_gradient_ = make(4, memory::MemorySpace::device);
    there_weights_ = make(2, memory::MemorySpace::device);
    arriving_ = make(4, pinned);
    leaving_ = make(2, pinned);
  }
  /// The copies have tiles of their own, so that nothing waits for them but the link.
  void run(bool copies) {
    kernels::GradientControl const control;
    optim::Segment const s{.master = at<float>(master_),
                           .states = {first_.data(), second_.data()},
                           .gradient = gradient_.data(),
                           .weights_out = weights_.data(),
                           .numel = numel_,
                           .parameters = {{{numel_}, numel_, 0, 0, numel_, "w"}},
                           .parameter_states = {{nullptr, nullptr}}};
    optimizer_->update(*worker_, {{s}, Dtype::fp32, Dtype::bf16}, {1, 1e-3, &control});
    auto const updated = worker_->record();
    while (copies && !updated.done()) {
      copy(*in_, arriving_, there_gradient_);
      copy(*out_, there_weights_, leaving_);
      in_->record().wait("gradients", deadline);
      out_->record().wait("weights", deadline);
    }
    updated.wait("the update", deadline);
  }

 private:
  static constexpr auto pinned = memory::MemorySpace::pinned;
  static constexpr std::size_t tile = std::size_t{4} << 20;
  memory::Buffer make(std::size_t element, memory::MemorySpace space) const {
    memory::Buffer out("bench", memory::Purpose::workspace,
                       static_cast<std::size_t>(numel_) * element, space);
    if (space == pinned) std::memset(out.data(), 0, out.bytes());
    return out;
  }
  template <class T>
  static T* at(memory::Buffer const& buffer) {
    return static_cast<T*>(buffer.data());
  }
  static void copy(memory::Queue& queue, memory::Buffer const& to, memory::Buffer const& from) {
    memory::copy(queue, to.data(), from.data(), std::min(tile, from.bytes()));
  }

  std::int64_t numel_;
  memory::Buffer gradient_, master_, first_, second_, weights_;
  memory::Buffer there_gradient_, there_weights_, arriving_, leaving_;
  std::unique_ptr<optim::Optimizer> optimizer_ = optim::make_optimizer(optim::make_spec("AdamW"));
  std::unique_ptr<memory::Queue> in_ = memory::make_stream_queue("in"),
                                 out_ = memory::make_stream_queue("out");
  std::unique_ptr<memory::Queue> worker_;
};

void bench_update(std::int64_t numel, double gb_per_s, int rounds) {
  simulate(gb_per_s);
  Update update(numel);
  std::vector<double> without, with;
  for (int round = 0; round <= rounds; ++round) {
    double const a = bench::seconds_of([&] { update.run(false); }),
                 b = bench::seconds_of([&] { update.run(true); });
    if (round == 0) continue;
    without.push_back(a);
    with.push_back(b);
  }
  double const alone = bench::summary(without).best, busy = bench::summary(with).best;
  std::printf(
      "{\"bench\": \"offload_update\", \"elements\": %ld, \"gb_per_s\": %g, \"seconds\": %.5f, "
      "\"seconds_with_copies\": %.5f, \"ratio\": %.3f}\n",
      static_cast<long>(numel), gb_per_s, alone, busy, alone / busy);
}

struct Shape {
  std::int64_t layers, width, heads, rows, length;
  int stage, steps;
};

/// A training of a GPT-2 on the simulated device.
class Training {
 public:
  explicit Training(Shape const& shape) : shape_(shape) {
    ConfigTree sizes = model::default_config("gpt2");
    sizes.set("vocab_size", 4096)
        .set("n_layer", shape.layers)
        .set("n_embd", shape.width)
        .set("n_head", shape.heads)
        .set("n_positions", shape.length);
    for (char const* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) sizes.set(key, 0.0);
    model_ = model::make_model(sizes, Dtype::bf16);
    zero::EngineConfig config;
    zero::ShardedWeights partition;
    partition.optimizer_offload.emplace();
    config.partition = zero::partition_of(shape.stage, partition);
    config.dtype = config.communication_dtype = Dtype::bf16;
    config.max_grad_norm = 1.0;
    engine_ = zero::make_engine(config, model_->units(), *comm_, *compute_);
    engine_->initialize(
        [](memory::UnitIndex, int, std::int64_t first, std::int64_t numel, float* out) {
          for (std::int64_t i = 0; i < numel; ++i)
            out[i] = 1e-4f * static_cast<float>((first + i) * 7919 % 401 - 200);
        });
    for (std::int64_t i = 0; i < shape.rows * shape.length; ++i)
      tokens_.push_back(static_cast<std::int32_t>(i * 7919 % model_->vocabulary_size()));
  }

  struct Seconds {
    double passes = 0.0, rest = 0.0;
  };
  Seconds step(double gb_per_s) {
    memory::set_simulated_link(1e9 * gb_per_s);
    Seconds out;
    out.passes = bench::seconds_of([&] {
      model::PassSettings settings;
      settings.gradient_scale =
          static_cast<float>(1.0 / static_cast<double>(shape_.rows * (shape_.length - 1)));
      engine_->begin_step();
      engine_->begin_micro_step(0, 1);
      (void)model_
          ->train({tokens_.data(), shape_.rows, shape_.length, 0}, settings, *engine_, *compute_)
          .value();
    });
    out.rest = bench::seconds_of([&] {
      engine_->finish_step(1e-4);
      compute_->record().wait("the step", deadline);
    });
    return out;
  }
  std::int64_t numel() const { return engine_->plan().parameter_count(); }

 private:
  Shape shape_;
  std::unique_ptr<comm::Collectives> comm_ = comm::make_device(comm::make_loopback(), deadline);
  std::unique_ptr<memory::Queue> compute_ = memory::make_stream_queue("compute");
  std::unique_ptr<model::CausalLm> model_;
  std::unique_ptr<zero::Engine> engine_;
  std::vector<std::int32_t> tokens_;
};

void bench_train(Shape const& shape) {
  simulate(0.0);
  Training training(shape);
  (void)training.step(0.0);
  double const links[] = {16.0, 32.0, 64.0};
  std::vector<double> passes[3], rest[3];
  for (int step = 0; step < shape.steps; ++step)
    for (int link = 0; link < 3; ++link) {
      auto const taken = training.step(links[link]);
      passes[link].push_back(taken.passes);
      rest[link].push_back(taken.rest);
    }
  for (int link = 0; link < 3; ++link) {
    double const busy = bench::summary(passes[link]).median,
                 exposed = bench::summary(rest[link]).median;
    double const on_link = 2.0 * static_cast<double>(training.numel()) / (1e9 * links[link]);
    std::printf(
        "{\"bench\": \"offload_train\", \"stage\": %d, \"parameters\": %ld, \"tokens\": %ld, "
        "\"gb_per_s\": %g, \"seconds_of_passes\": %.4f, \"exposed_seconds\": %.4f, "
        "\"link_seconds_each_way\": %.4f, \"exposed\": %.4f}\n",
        shape.stage, static_cast<long>(training.numel()),
        static_cast<long>(shape.rows * shape.length), links[link], busy, exposed, on_link,
        exposed / (busy + exposed));
  }
}

int run(int argc, char** argv) {
  std::string const what = argc > 1 ? argv[1] : "";
  auto const number = [&](int i) { return std::atoll(argv[i]); };
  memory::Runtime const runtime({0, -1});
  if (what == "update" && argc > 3)
    bench_update(number(2), std::atof(argv[3]), argc > 4 ? std::atoi(argv[4]) : 7);
  else if (what == "train" && argc > 7)
    bench_train({number(2), number(3), number(4), number(5), number(6), std::atoi(argv[7]),
                 argc > 8 ? std::atoi(argv[8]) : 5});
  else
    throw UsageError(
        "bench.offload update ELEMENTS GB_PER_S [ROUNDS] | train LAYERS WIDTH HEADS ROWS LENGTH "
        "STAGE [STEPS]");
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  try {
    return tessera::run(argc, argv);
  } catch (tessera::Error const& error) {
    std::fprintf(stderr, "bench.offload: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}
