// Speed on a GPU, one JSON line a measurement; on the host with the same arguments where no device
// is, so that it can be tried anywhere.
//   bench.gpu gemm [SIZE]                        best product SIZE^3 in bf16
//   bench.gpu optimizer [PARAMETERS]             fused AdamW step next to a device copy
//   bench.gpu flat [ELEMENTS]                    element-wise kernels and the squares of gradients,
//   each next to a device copy of the same bytes bench.gpu rows [ROWS WIDTH VOCABULARY]       layer
//   norms, sums of columns, embeddings and cross-entropy, the same way bench.gpu overlap LAYERS
//   WIDTH HEADS ROWS LENGTH STAGE RANKS GB_PER_S [STEPS]     share of the communication that
//   computation hides, as one
//                                                rank of RANKS with a network that is simulated
//                                                (tests/support/delayed_collectives.hpp)
//   bench.gpu train LAYERS WIDTH HEADS ROWS LENGTH [STEPS] [CHECKPOINTING]     GPT-2 in bf16, ZeRO
//   stage 0 on one rank; TESSERA_DROPOUT=P in the environment: with dropout
//   TESSERA_MODEL=llama: a Llama with a quarter of the heads for keys and values, 3.5 times the
//   width in its MLP and 32000 tokens, shaped as Llama 3 8B. TESSERA_VOCABULARY=N: N tokens.
//   TESSERA_PRECISION: bf16 (default); autocast, fp32 weights and residual stream with products in
//   bf16, which is --bf16 of tessera-train; or fp32
// TESSERA_PORTABLE in the environment: without cuDNN's attention. TESSERA_GRAPHS: a block's kernels
// as one device graph. TESSERA_GELU=fused or separate: gelu_new in the products or next to them.
// TESSERA_NONDETERMINISTIC: algorithms that sum in an order of their own. TESSERA_FP8: the
// products of blocks in fp8.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "overlap_measure.hpp"
#include "tessera/comm/compose/device_collectives.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/core/error.hpp"
#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/kernels/elementwise/gradient_statistics.hpp"
#include "tessera/kernels/gemm/gemm.hpp"
#include "tessera/kernels/launch/device_settings.hpp"
#include "tessera/kernels/launch/kernel_times.hpp"
#include "tessera/kernels/launch/used_routes.hpp"
#include "tessera/kernels/loss/cross_entropy.hpp"
#include "tessera/kernels/loss/embedding.hpp"
#include "tessera/kernels/norm/layer_norm.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/runtime.hpp"
#include "tessera/memory/stream_queue.hpp"
#include "tessera/model/families/registry.hpp"
#include "tessera/optim/optimizer.hpp"
#include "tessera/topology/mpi_session.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace tessera {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

struct Place {
  std::unique_ptr<memory::Queue> queue;
  memory::MemorySpace space;

  void finish() const { queue->record().wait("the measured work", 10min); }
  /// Fastest of five times the mean of @p each calls.
  double seconds(int each, std::function<void()> const& call) const {
    call();
    finish();
    double best = 1e30;
    for (int repetition = 0; repetition < 5; ++repetition) {
      auto const start = Clock::now();
      for (int i = 0; i < each; ++i) call();
      finish();
      best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count() / each);
    }
    return best;
  }
};

memory::Buffer noise(Place const& place, Dtype dtype, std::int64_t numel, float size) {
  std::size_t const bytes = static_cast<std::size_t>(numel) * size_of(dtype);
  memory::Buffer host("random numbers", memory::Purpose::workspace, bytes),
      out("operand", memory::Purpose::workspace, bytes, place.space);
  std::uint32_t state = 1;
  for (std::int64_t i = 0; i < numel; ++i) {
    state = state * 1664525u + 1013904223u;
    float const value = size * (static_cast<float>(state >> 8) * 0x1p-23f - 1.0f);
    if (dtype == Dtype::bf16)
      static_cast<bfloat16*>(host.data())[i] = bfloat16(value);
    else
      static_cast<float*>(host.data())[i] = value;
  }
  memory::copy(*place.queue, out.data(), host.data(), bytes);
  place.finish();
  return out;
}

void bench_gemm(Place const& place, std::int64_t n) {
  auto const a = noise(place, Dtype::bf16, n * n, 1.0f), b = noise(place, Dtype::bf16, n * n, 1.0f),
             c = noise(place, Dtype::bf16, n * n, 1.0f);
  auto const view = [&](memory::Buffer const& x) {
    return memory::TensorView(x.data(), Dtype::bf16, {n, n});
  };
  double const seconds =
      place.seconds(10, [&] { kernels::gemm(*place.queue, {}, view(c), view(a), view(b)); });
  std::printf("{\"bench\": \"gemm\", \"size\": %ld, \"tflops\": %.2f}\n", static_cast<long>(n),
              2e-12 * static_cast<double>(n * n * n) / seconds);
}

/// 16 bytes read and 12 written a parameter, with bf16 gradients and weights 14 and 14.
void bench_optimizer(Place const& place, std::int64_t n) {
  auto const master = noise(place, Dtype::fp32, n, 0.02f),
             mean = noise(place, Dtype::fp32, n, 1e-3f),
             square = noise(place, Dtype::fp32, n, 0.0f);
  auto const gradient = noise(place, Dtype::fp32, n, 1e-2f),
             weights = noise(place, Dtype::bf16, n, 0.02f);
  auto const fp32 = [](memory::Buffer const& x) { return static_cast<float*>(x.data()); };
  optim::Segment segment;
  segment.master = fp32(master);
  segment.states = {fp32(mean), fp32(square)};
  segment.gradient = gradient.data();
  segment.weights_out = weights.data();
  segment.numel = n;
  auto const adamw = optim::make_optimizer(optim::make_spec("AdamW"));
  optim::Segments const segments{{segment}, Dtype::fp32, Dtype::bf16};
  double const update = place.seconds(5, [&] { adamw->update(*place.queue, segments, {1, 1e-4}); });
  double const copy = place.seconds(5, [&] {
    memory::copy(*place.queue, mean.data(), gradient.data(),
                 static_cast<std::size_t>(n) * sizeof(float));
  });
  double const update_rate = 30e-9 * static_cast<double>(n) / update,
               copy_rate = 8e-9 * static_cast<double>(n) / copy;
  std::printf(
      "{\"bench\": \"optimizer\", \"parameters\": %ld, \"update_gb_s\": %.1f, \"copy_gb_s\": %.1f, "
      "\"ratio\": %.3f}\n",
      static_cast<long>(n), update_rate, copy_rate, update_rate / copy_rate);
}

/// Bytes read and written by each kernel, per second, and as a share of what a copy moves.
void bench_flat(Place const& place, std::int64_t n) {
  using memory::TensorView;
  auto const wide = noise(place, Dtype::fp32, n, 1.0f), a = noise(place, Dtype::bf16, n, 1.0f),
             b = noise(place, Dtype::bf16, n, 1.0f);
  memory::Buffer const out("result", memory::Purpose::workspace,
                           static_cast<std::size_t>(n) * sizeof(float), place.space),
      sums("sums", memory::Purpose::workspace, 16, place.space);
  TensorView const fp32(wide.data(), Dtype::fp32, {n}), x(a.data(), Dtype::bf16, {n}),
      y(b.data(), Dtype::bf16, {n}), to(out.data(), Dtype::bf16, {n});
  TensorView const to_fp32(out.data(), Dtype::fp32, {n});
  auto& q = *place.queue;
  kernels::Dropout const drop{0.1f, 1, 2, 0};
  double const copy =
      place.seconds(5, [&] { memory::copy(q, out.data(), wide.data(), out.bytes()); });
  double const copy_rate = 8e-9 * static_cast<double>(n) / copy;
  auto const measure = [&](char const* kernel, double bytes, std::function<void()> const& call) {
    double const rate = 1e-9 * bytes * static_cast<double>(n) / place.seconds(5, call);
    std::printf(
        "{\"bench\": \"flat\", \"kernel\": \"%s\", \"elements\": %ld, \"gb_s\": %.1f, "
        "\"copy_gb_s\": %.1f, \"ratio\": %.3f}\n",
        kernel, static_cast<long>(n), rate, copy_rate, rate / copy_rate);
  };
  measure("fill_bf16", 2, [&] { kernels::fill(q, to, 1.0f); });
  measure("cast_fp32_to_bf16", 6, [&] { kernels::cast(q, to, fp32); });
  measure("add_bf16_to_fp32", 10, [&] { kernels::add(q, to_fp32, x); });
  measure("residual_add_bf16", 6, [&] { kernels::residual_add(q, to, x, y, {}); });
  measure("residual_add_dropout_bf16", 6, [&] { kernels::residual_add(q, to, x, y, drop); });
  measure("gelu_new_bf16", 4, [&] { kernels::gelu_new(q, to, x); });
  measure("gelu_new_backward_bf16", 6, [&] { kernels::gelu_new_backward(q, to, x, y); });
  measure("gradient_statistics_bf16", 2, [&] {
    kernels::gradient_statistics(q, static_cast<double*>(sums.data()), {{x.data(), n}},
                                 Dtype::bf16);
  });
  measure("gradient_statistics_fp32", 4, [&] {
    kernels::gradient_statistics(q, static_cast<double*>(sums.data()), {{wide.data(), n}},
                                 Dtype::fp32);
  });
}

memory::Buffer integers(Place const& place, std::vector<std::int32_t> const& values) {
  memory::Buffer out("integers", memory::Purpose::workspace, values.size() * sizeof values[0],
                     place.space);
  memory::copy(*place.queue, out.data(), values.data(), out.bytes());
  place.finish();
  return out;
}

/// Kernels by rows and columns of a GPT-2 of this width in bf16: bytes read and written once each,
/// partial sums left out.
void bench_rows(Place const& place, std::int64_t rows, std::int64_t width,
                std::int64_t vocabulary) {
  using memory::TensorView;
  auto& q = *place.queue;
  std::int64_t const n = rows * width, scored = std::min<std::int64_t>(rows, 2048),
                     row = (vocabulary + 63) / 64 * 64;
  auto const a = noise(place, Dtype::bf16, n, 1.0f), b = noise(place, Dtype::bf16, n, 1.0f),
             c = noise(place, Dtype::bf16, n, 1.0f), d = noise(place, Dtype::bf16, n, 1.0f);
  auto const gain = noise(place, Dtype::bf16, width, 1.0f),
             mean = noise(place, Dtype::fp32, rows, 0.1f),
             rstd = noise(place, Dtype::fp32, rows, 1.0f);
  auto const sums = noise(place, Dtype::fp32, 2 * width, 1.0f),
             table = noise(place, Dtype::bf16, vocabulary * width, 1.0f);
  auto const logits = noise(place, Dtype::fp32, scored * row, 4.0f),
             dlogits = noise(place, Dtype::bf16, scored * row, 1.0f),
             losses = noise(place, Dtype::fp32, scored, 1.0f);
  std::int64_t const room = std::max({kernels::bias_gradient_workspace(q, rows, width),
                                      kernels::layer_norm_backward_workspace(q, rows, width),
                                      kernels::embedding_backward_parts(q, rows, width)});
  memory::Buffer const workspace(
      "partial sums", memory::Purpose::workspace,
      static_cast<std::size_t>(std::max<std::int64_t>(room, 1)) * sizeof(float), place.space);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(rows)), sorted(ids);
  std::uint32_t state = 1;
  for (auto& id : ids)
    id = static_cast<std::int32_t>((state = state * 1664525u + 1013904223u) >> 8) %
         static_cast<std::int32_t>(vocabulary);
  kernels::order_by_token(sorted.data(), ids.data(), rows);
  auto const tokens = integers(place, ids), order = integers(place, sorted);
  auto const matrix = [&](memory::Buffer const& x) {
    return TensorView(x.data(), Dtype::bf16, {rows, width});
  };
  auto const floats = [](memory::Buffer const& x, std::int64_t first, std::int64_t count) {
    return TensorView(static_cast<float*>(x.data()) + first, Dtype::fp32, {count});
  };
  TensorView const gamma(gain.data(), Dtype::bf16, {width}),
      words(table.data(), Dtype::bf16, {vocabulary, width}),
      ids_view(tokens.data(), Dtype::int32, {1, rows});
  TensorView const m = floats(mean, 0, rows), r = floats(rstd, 0, rows),
                   parts = floats(workspace, 0, std::max<std::int64_t>(room, 1));
  double const copy_rate = 4e-9 * static_cast<double>(n) / place.seconds(5, [&] {
    memory::copy(q, d.data(), a.data(), a.bytes());
  });
  auto const measure = [&](char const* kernel, double bytes, std::function<void()> const& call) {
    double const rate = 1e-9 * bytes / place.seconds(5, call);
    std::printf(
        "{\"bench\": \"rows\", \"kernel\": \"%s\", \"rows\": %ld, \"width\": %ld, \"gb_s\": %.1f, "
        "\"copy_gb_s\": %.1f, \"ratio\": %.3f}\n",
        kernel, static_cast<long>(rows), static_cast<long>(width), rate, copy_rate,
        rate / copy_rate);
  };
  auto const each = static_cast<double>(n);
  kernels::LayerNormWeights const norm{gamma, gamma, 1e-5f};
  constexpr auto add = memory::WriteMode::add;
  measure("layer_norm", 4 * each, [&] {
    kernels::layer_norm(q, norm, {matrix(d), m, r}, matrix(a));
  });
  measure("residual_layer_norm", 8 * each, [&] {
    kernels::residual_layer_norm(q, norm, matrix(c), {matrix(d), m, r}, {matrix(a), matrix(b), {}});
  });
  measure("layer_norm_backward", 8 * each, [&] {
    kernels::layer_norm_backward(
        q, {{matrix(d), add}, floats(sums, 0, width), floats(sums, width, width), add},
        {matrix(b), matrix(a), m, r, gamma}, parts);
  });
  measure("bias_gradient", 2 * each, [&] {
    kernels::bias_gradient(q, {floats(sums, 0, width), add}, matrix(a), parts);
  });
  measure("embedding", 4 * each,
          [&] { kernels::embedding(q, matrix(d), ids_view, words, {}, {}); });
  measure("embedding_backward_tokens", 2 * each, [&] {
    kernels::embedding_backward(
        q, {}, {{words, add}, {}},
        {matrix(a), ids_view, {TensorView(order.data(), Dtype::int32, {rows}), parts}});
  });
  TensorView const in(logits.data(), Dtype::fp32, {scored, row}),
      out(dlogits.data(), Dtype::bf16, {scored, row}),
      targets(tokens.data(), Dtype::int32, {scored});
  measure("cross_entropy", 6.0 * static_cast<double>(scored * vocabulary), [&] {
    kernels::cross_entropy(q, {1e-3f, vocabulary}, floats(losses, 0, scored), out, in, targets);
  });
}

struct Training {
  std::int64_t layers, width, heads, rows, length;
  int steps = 8;
  bool checkpointing = false;
};

/// Returns the operations of the model per token: 6 N without @p looked_up rows, which no product
/// reads, + 6 L C T for causal attention, halved.
double flops_per_token(Training const& t, std::int64_t parameters, std::int64_t looked_up) {
  return 6.0 * static_cast<double>(parameters - looked_up * t.width) +
         6.0 * static_cast<double>(t.layers * t.width * t.length);
}

ConfigTree config_of(Training const& t, bool llama, std::int64_t vocabulary) {
  ConfigTree config = model::default_config(llama ? "llama" : "gpt2");
  config.set("vocab_size", vocabulary);
  if (llama)
    return config.set("num_hidden_layers", t.layers)
        .set("hidden_size", t.width)
        .set("intermediate_size", t.width * 7 / 2)
        .set("num_attention_heads", t.heads)
        .set("num_key_value_heads", std::max<std::int64_t>(t.heads / 4, 1))
        .set("max_position_embeddings", t.length)
        .set("tie_word_embeddings", false);
  config.set("n_layer", t.layers)
      .set("n_embd", t.width)
      .set("n_head", t.heads)
      .set("n_positions", t.length);
  char const* const dropout = std::getenv("TESSERA_DROPOUT");
  for (char const* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"})
    config.set(key, dropout ? std::atof(dropout) : 0.0);
  return config;
}

/// Seconds of a step by kinds of kernels, as JSON; a step of its own, because measuring costs.
std::string work_of(Place const& place, std::function<void()> const& step) {
  std::array<double, kernels::work_kinds> seconds{};
  kernels::KernelTimes times;
  step();
  place.finish();
  for (auto const& entry : times.take())
    seconds[static_cast<std::size_t>(entry.work)] += entry.seconds;
  std::string out = "{";
  for (int i = 0; i < kernels::work_kinds; ++i)
    out += concat(i == 0 ? "\"" : ", \"", name_of(static_cast<kernels::Work>(i)),
                  "\": ", seconds[static_cast<std::size_t>(i)]);
  return out + "}";
}

/// How the blocks of a step were launched, as JSON.
std::string graphs_of(std::function<void()> const& step) {
  auto const before = memory::graph_launches_of_process();
  step();
  auto const n = memory::graph_launches_of_process() - before;
  return concat("{\"replayed\": ", n.replayed, ", \"updated\": ", n.updated,
                ", \"captured\": ", n.captured, ", \"separate\": ", n.separate, "}");
}

void bench_train(Place const& place, Training const& t, comm::Collectives& comm) {
  char const *const named = std::getenv("TESSERA_MODEL"), *const size =
                                                              std::getenv("TESSERA_VOCABULARY");
  char const* const wanted = std::getenv("TESSERA_PRECISION");
  std::string const precision = wanted ? wanted : "bf16";
  bool const llama = named && std::string(named) == "llama";
  std::int64_t const vocabulary = size ? std::atoll(size) : llama ? 32000 : 50257;
  ConfigTree const config = config_of(t, llama, vocabulary);
  zero::EngineConfig how;
  how.dtype = precision == "bf16" ? Dtype::bf16 : Dtype::fp32;
  how.max_grad_norm = 1.0;
  model::ModelOptions options(how.dtype, precision == "fp32" ? Dtype::fp32 : Dtype::bf16);
  options.fp8 = std::getenv("TESSERA_FP8") != nullptr;
  auto const model = model::make_model(config, options);
  auto const engine = zero::make_engine(how, model->units(), comm, *place.queue);
  engine->initialize([](memory::UnitIndex unit, int parameter, std::int64_t first,
                        std::int64_t numel, float* out) {
    auto state = static_cast<std::uint32_t>(static_cast<int>(unit) * 31 + parameter) +
                 static_cast<std::uint32_t>(first);
    for (std::int64_t i = 0; i < numel; ++i)
      out[i] =
          0.02f *
          (static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1.0f);
  });
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(t.rows * t.length));
  std::uint32_t state = 7;
  for (auto& token : tokens)
    token = static_cast<std::int32_t>((state = state * 1664525u + 1013904223u) >> 8) %
            static_cast<std::int32_t>(vocabulary);
  model::PassSettings settings;
  settings.gradient_scale = static_cast<float>(1.0 / static_cast<double>(t.rows * (t.length - 1)));
  settings.recompute = t.checkpointing ? Recompute::block : Recompute::none;
  std::vector<double> seconds;
  double loss = 0.0;
  auto const one_step = [&] {
    engine->begin_step();
    engine->begin_micro_step(0, 1);
    loss = model->train({tokens.data(), t.rows, t.length, 0}, settings, *engine, *place.queue)
               .value() /
           static_cast<double>(t.rows * (t.length - 1));
    engine->finish_step(1e-4);
    place.finish();
  };
  for (int step = 0; step < t.steps + 2; ++step) {
    auto const start = Clock::now();
    one_step();
    if (step >= 2) seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  auto const graphs = graphs_of(one_step);
  auto const work = std::getenv("TESSERA_GRAPHS") ? "{}" : work_of(place, one_step);
  std::sort(seconds.begin(), seconds.end());
  double const median = seconds[seconds.size() / 2],
               rate = static_cast<double>(t.rows * t.length) / median;
  auto const parameters = engine->plan().parameter_count();
  auto const tracked = place.space == memory::MemorySpace::device
                           ? memory::MemoryTracker::of_device().peak_total()
                           : memory::MemoryTracker::of_process().peak_total();
  auto const m = engine->memory();
  std::printf(
      "{\"bench\": \"train\", \"model\": \"%s\", \"precision\": \"%s\", \"parameters\": %ld, "
      "\"rows\": "
      "%ld, \"length\": %ld, "
      "\"tokens_per_second\": %.0f, \"fastest\": %.0f, \"tflops\": %.2f, "
      "\"loss\": %.4f, \"peak_bytes\": %zu, \"state_bytes\": %zu, \"formula_bytes\": %zu, "
      "\"uses\": \"%s\", \"graphs\": %s, \"work_seconds\": %s}\n",
      llama ? "llama" : "gpt2", precision.c_str(), static_cast<long>(parameters),
      static_cast<long>(t.rows), static_cast<long>(t.length), rate,
      static_cast<double>(t.rows * t.length) / seconds.front(),
      rate *
          flops_per_token(t, static_cast<std::int64_t>(parameters), llama ? vocabulary : t.length) *
          1e-12,
      loss, tracked, m.weights + m.gradients + m.master_weights + m.optimizer_state, m.formula,
      kernels::used_routes_text().c_str(), graphs.c_str(), work.c_str());
}

int run(std::vector<std::string> const& words, topology::MpiSession const& session) {
  bool const device = memory::find_devices().count > 0;
  kernels::DeviceSettings settings;
  if (std::getenv("TESSERA_PORTABLE")) settings.attention = kernels::DeviceAttention::portable;
  settings.deterministic = !std::getenv("TESSERA_NONDETERMINISTIC");
  if (char const* const gelu = std::getenv("TESSERA_GELU"))
    settings.gelu =
        std::string(gelu) == "fused" ? kernels::DeviceGelu::fused : kernels::DeviceGelu::separate;
  kernels::set_device_settings(settings);
  memory::Runtime const runtime({0, device ? 0 : -1});
  auto const graph_mode =
      std::getenv("TESSERA_GRAPHS") ? memory::GraphMode::capture : memory::GraphMode::off;
  Place place{device
                  ? memory::make_stream_queue("compute", memory::StreamPriority::normal, graph_mode)
                  : memory::make_inline_queue("compute"),
              device ? memory::MemorySpace::device : memory::MemorySpace::host};
  auto const number = [&](std::size_t i, std::int64_t otherwise) {
    return i < words.size() ? std::atoll(words[i].c_str()) : otherwise;
  };
  if (words[0] == "gemm") {
    bench_gemm(place, number(1, 8192));
  } else if (words[0] == "optimizer") {
    bench_optimizer(place, number(1, 124'000'000));
  } else if (words[0] == "flat") {
    bench_flat(place, number(1, 200'000'000));
  } else if (words[0] == "rows") {
    bench_rows(place, number(1, 32768), number(2, 768), number(3, 50257));
  } else if (words[0] == "train" && words.size() >= 6) {
    auto comm = comm::make_mpi(session, 60s);
    if (device) comm = comm::make_device(std::move(comm), 60s);
    bench_train(place,
                {number(1, 0), number(2, 0), number(3, 0), number(4, 0), number(5, 0),
                 static_cast<int>(number(6, 8)), number(7, 0) != 0},
                *comm);
  } else if (words[0] == "overlap" && words.size() >= 9) {
    test::measure_overlap({number(1, 0), number(2, 0), number(3, 0), number(4, 0), number(5, 0),
                           static_cast<int>(number(6, 0)), static_cast<int>(number(7, 0)),
                           std::atof(words[8].c_str()), static_cast<int>(number(9, 4))},
                          *place.queue);
  } else {
    std::fprintf(
        stderr,
        "bench.gpu gemm [SIZE] | optimizer [PARAMETERS] | flat [ELEMENTS] | rows [ROWS WIDTH "
        "VOCABULARY] | train LAYERS WIDTH HEADS ROWS LENGTH [STEPS] [CHECKPOINTING] |\n"
        "          overlap LAYERS WIDTH HEADS ROWS LENGTH STAGE RANKS GB_PER_S [STEPS]\n");
    return 64;
  }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::topology::MpiSession session(argc, argv);
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty()) words.emplace_back("help");
  try {
    return tessera::run(words, session);
  } catch (tessera::Error const& error) {
    std::fprintf(stderr, "bench.gpu: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}
