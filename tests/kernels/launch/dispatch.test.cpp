/// What holds for every kernel: its name, that it neither fences nor allocates, and that threads
/// and queues do not change its bits.
#include <unistd.h>

#include <Kokkos_Core.hpp>
#include <array>
#include <cstdio>
#include <iostream>
#include <map>
#include <sstream>
#include <string>

#include "reference.hpp"
#include "tessera/kernels/attention/attention.hpp"
#include "tessera/kernels/attention/attention_decode.hpp"
#include "tessera/kernels/attention/key_value_cache.hpp"
#include "tessera/kernels/attention/rotary.hpp"
#include "tessera/kernels/elementwise/activation.hpp"
#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/kernels/elementwise/gradient_statistics.hpp"
#include "tessera/kernels/loss/cross_entropy.hpp"
#include "tessera/kernels/loss/embedding.hpp"
#include "tessera/kernels/norm/layer_norm.hpp"
#include "tessera/kernels/norm/rms_norm.hpp"
#include "tessera/memory/runtime.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::kernels::test {
namespace {

/// Inputs and outputs of one call of every kernel, by name.
class Everything {
 public:
  explicit Everything(Dtype dtype) : dtype_(dtype) {
    tokens_.randomize(1, 20.0, 20.0);
    targets_.randomize(2, 300.0, 300.0);
    logits_.randomize(3, 5.0);
  }

  void run(Queue& q) {
    elementwise(q);
    normalize(q);
    embed(q);
    attend(q);
    decode(q);
    normalize_squares(q);
    gate(q);
    cross_entropy(q, {0.5f}, array("losses", Dtype::fp32, {rows}).view(),
                  array("dlogits", dtype_, {rows, 601}).view(), logits_.view(), targets_.view());
    step(q);
    q.record().wait("every kernel", std::chrono::seconds(60));
  }
  std::map<std::string, Array> const& arrays() const { return arrays_; }

 private:
  static constexpr std::int64_t batch = 2, sequence = 70, rows = batch * sequence, columns = 192;

  Array& array(std::string const& name, Dtype dtype, std::initializer_list<std::int64_t> dims) {
    auto const [at, is_new] = arrays_.try_emplace(name, dtype, dims);
    if (is_new) at->second.randomize(std::hash<std::string>{}(name), 1.0);
    return at->second;
  }
  TensorView matrix(std::string const& name) { return array(name, dtype_, {rows, columns}).view(); }
  TensorView vector(std::string const& name) { return array(name, dtype_, {columns}).view(); }

  void elementwise(Queue& q) {
    fill(q, matrix("filled"), 2.0f);
    cast(q, array("cast", Dtype::fp32, {rows, columns}).view(), matrix("a"));
    add(q, matrix("added"), matrix("a"));
    scale(q, matrix("scaled"), 3.0f);
    dropout(q, matrix("dropped"), matrix("a"), drop_);
    residual_add(q, matrix("sum"), matrix("a"), matrix("b"), drop_);
    gelu_new(q, matrix("gelu"), matrix("a"));
    gelu_new_backward(q, matrix("dgelu"), matrix("b"), matrix("a"));
    bias_gradient(
        q, {vector("dbias"), WriteMode::add}, matrix("a"),
        array("sums of columns", Dtype::fp32, {bias_gradient_workspace(q, rows, columns)}).view());
  }
  void normalize(Queue& q) {
    TensorView const mean = array("mean", Dtype::fp32, {rows}).view(),
                     rstd = array("rstd", Dtype::fp32, {rows}).view();
    LayerNormWeights const norm{vector("gamma"), vector("beta"), 1e-5f};
    layer_norm(q, norm, {matrix("normal"), mean, rstd}, matrix("a"));
    residual_layer_norm(q, norm, matrix("sum2"), {matrix("normal2"), mean, rstd},
                        {matrix("a"), matrix("b"), drop_});
    layer_norm_backward(
        q, {{matrix("din"), WriteMode::add}, vector("dgamma"), vector("dbeta"), WriteMode::add},
        {matrix("b"), matrix("sum2"), mean, rstd, vector("gamma")},
        array("parts", Dtype::fp32, {layer_norm_backward_workspace(q, rows, columns)}).view());
  }
  void embed(Queue& q) {
    TensorView const wte = array("wte", dtype_, {40, columns}).view(),
                     wpe = array("wpe", dtype_, {80, columns}).view();
    embedding(q, matrix("embedded"), tokens_.view(), wte, {wpe}, drop_);
    embedding_backward(q, drop_,
                       {{array("dwte", dtype_, {40, columns}).view()},
                        {array("dwpe", dtype_, {80, columns}).view()}},
                       {matrix("b"), tokens_.view()});
  }
  void attend(Queue& q) {
    AttentionShape const shape{batch, sequence, 6, 3, 32, 0.2f};
    TensorView const lse = array("lse", Dtype::fp32, {batch, 6, sequence}).view(),
                     query = matrix("query"), out = matrix("attended"),
                     key = array("key", dtype_, {rows, 96}).view(),
                     value = array("value", dtype_, {rows, 96}).view(),
                     dkey = array("dkey", dtype_, {rows, 96}).view(),
                     dvalue = array("dvalue", dtype_, {rows, 96}).view();
    AttentionConfig const config{dtype_, shape, drop_};
    AttentionInput const from{{query.data(), 192}, {key.data(), 96}, {value.data(), 96}};
    attention(q, config, {out, lse}, from);
    attention_backward(q, config,
                       {{matrix("dquery").data(), 192}, {dkey.data(), 96}, {dvalue.data(), 96}},
                       from, {matrix("b"), out, lse},
                       array("sums", Dtype::fp32, {attention_backward_workspace(q, shape)}).view());
  }
  void decode(Queue& q) {
    DecodeShape const shape{dtype_, batch, 1, 6, 3, 32, 0.2f, {}, 600};
    TensorView const key = array("key cache", dtype_, {batch, 600, 96}).view(),
                     value = array("value cache", dtype_, {batch, 600, 96}).view();
    TensorView const lengths = array("lengths", Dtype::int32, {batch}).view();
    fill_lengths(lengths);
    append_to_cache(q, {dtype_, batch, 1, 3, 32}, {key.data(), 600 * 96, 96},
                    {matrix("b").data(), 192}, lengths);
    attention_decode(q, shape, array("decoded", dtype_, {batch, 192}).view(),
                     {{matrix("query").data(), 192},
                      {key.data(), 600 * 96, 96},
                      {value.data(), 600 * 96, 96},
                      lengths},
                     array("partial", Dtype::fp32, {attention_decode_workspace(q, shape)}).view());
  }
  static void fill_lengths(TensorView lengths) {
    lengths.as<std::int32_t>()[0] = 600;
    lengths.as<std::int32_t>()[1] = 31;
  }
  void normalize_squares(Queue& q) {
    TensorView const rstd = array("rms rstd", Dtype::fp32, {rows}).view(),
                     heads_rstd = array("heads rstd", Dtype::fp32, {rows, 6}).view();
    RmsNormWeights const norm{vector("gamma")}, of_heads{array("head gamma", dtype_, {32}).view()};
    rms_norm(q, norm, {matrix("rms"), rstd}, matrix("a"));
    residual_rms_norm(q, norm, matrix("sum3"), {matrix("rms2"), rstd},
                      {matrix("a"), matrix("b"), drop_});
    TensorView const parts =
        array("rms parts", Dtype::fp32, {6 * rms_norm_backward_workspace(q, rows, columns)}).view();
    rms_norm_backward(q, norm, {{matrix("drms"), WriteMode::add}, {vector("drms gamma")}},
                      {matrix("b"), matrix("sum3"), rstd}, parts);
    HeadNormShape const shape{dtype_, rows, 6, 32};
    rms_norm_heads(q, of_heads, shape, {{matrix("heads").data(), 192}, heads_rstd},
                   {matrix("a").data(), 192});
    rms_norm_heads_backward(q, of_heads, shape,
                            {{matrix("dheads").data(), 192},
                             {array("dhead gamma", Dtype::fp32, {32}).view(), WriteMode::add}},
                            {{matrix("b").data(), 192}, {matrix("a").data(), 192}, heads_rstd},
                            parts);
    TensorView const cos = array("cos", Dtype::fp32, {sequence, 12}).view(),
                     sin = array("sin", Dtype::fp32, {sequence, 12}).view();
    rotate_heads(q, {{dtype_, batch, sequence, 6, 32, 24}, {cos, sin}, {}},
                 {matrix("rotated").data(), 192}, {matrix("a").data(), 192},
                 RotaryDirection::inverse);
  }
  void gate(Queue& q) {
    activate(q, Activation::silu, matrix("silu"), matrix("a"));
    activate_backward(q, Activation::gelu, matrix("derf"), matrix("b"), matrix("a"));
    cap_logits(q, matrix("capped"), 2.0f);
    GatedShape const shape{dtype_, rows, columns};
    gated_activate(q, Activation::silu, shape, {matrix("gated").data(), columns},
                   {{matrix("a").data(), columns}, {matrix("b").data(), columns}});
    gated_activate_backward(q, Activation::silu, shape,
                            {{matrix("dgate").data(), columns}, {matrix("dup").data(), columns}},
                            {matrix("c").data(), columns},
                            {{matrix("a").data(), columns}, {matrix("b").data(), columns}});
  }
  void step(Queue& q) {
    optim::Segment segment;
    auto const state = [&](char const* name) {
      return array(name, Dtype::fp32, {rows, columns}).view().as<float>();
    };
    segment.master = state("master");
    segment.states = {state("exp_avg"), array("exp_avg_sq", Dtype::fp32, {rows, columns})
                                            .randomize(9, 0.5, 0.5)
                                            .view()
                                            .as<float>()};
    segment.gradient = matrix("a").data();
    segment.numel = rows * columns;
    optim::make_optimizer(optim::make_spec("AdamW"))
        ->update(q, {{segment}, dtype_, Dtype::fp32}, {1, 0.1});
    gradient_statistics(q, array("sums of squares", Dtype::fp64, {2}).view().as<double>(),
                        {{matrix("a").data(), rows * columns}}, dtype_);
  }

  Dtype dtype_;
  Dropout drop_{0.2f, 3, 4, 5};
  Array tokens_{Dtype::int32, {batch, sequence}}, targets_{Dtype::int32, {rows}},
      logits_{Dtype::fp32, {rows, 601}};
  std::map<std::string, Array> arrays_;
};

void expect_same(Everything const& a, Everything const& b) {
  ASSERT_EQ(a.arrays().size(), b.arrays().size());
  for (auto const& [name, array] : a.arrays()) EXPECT_TRUE(array == b.arrays().at(name)) << name;
}

/// Counts what Kokkos reports of each kernel, fence and allocation.
struct Seen {
  std::map<std::string, int> kernels;
  std::vector<std::string> fences, allocations;
};
Seen* seen = nullptr;

class Observed : public KernelTest {
 protected:
  void SetUp() override {
    seen = &seen_;
    using namespace Kokkos::Tools::Experimental;
    set_begin_parallel_for_callback(
        [](char const* name, std::uint32_t, std::uint64_t*) { ++seen->kernels[name]; });
    set_begin_parallel_reduce_callback(
        [](char const* name, std::uint32_t, std::uint64_t*) { ++seen->kernels[name]; });
    set_begin_fence_callback([](char const* name, std::uint32_t, std::uint64_t*) {
      // Kokkos fences before every callback of a tool; those are not the kernels' own
      if (std::string_view(name).find("Profile Tool Fence") == std::string_view::npos)
        seen->fences.emplace_back(name);
    });
    set_allocate_data_callback([](Kokkos::Tools::SpaceHandle, char const* name, void const*,
                                  std::uint64_t) { seen->allocations.emplace_back(name); });
  }
  void TearDown() override {
    using namespace Kokkos::Tools::Experimental;
    set_begin_parallel_for_callback(nullptr);
    set_begin_parallel_reduce_callback(nullptr);
    set_begin_fence_callback(nullptr);
    set_allocate_data_callback(nullptr);
    seen = nullptr;
  }
  Seen seen_;
};
INSTANTIATE_TEST_SUITE_P(Dtypes, Observed, all_dtypes(), dtype_test_name);

TEST_P(Observed, KernelsAreNamedAndDoNotFenceOrAllocate) {
  Everything(dtype).run(*queue);
  EXPECT_GE(seen_.kernels.size(), 33u);
  for (auto const& [name, calls] : seen_.kernels)
    EXPECT_EQ(name.rfind("tessera::kernels::", 0), 0u) << name << ", " << calls << " calls";
  EXPECT_EQ(seen_.fences, std::vector<std::string>{});
  EXPECT_EQ(seen_.allocations, std::vector<std::string>{});
}

TESSERA_KERNEL_SUITE(Dispatch);

/// One line per array: its name and a 64-bit FNV-1a hash of its bytes.
std::string checksums(Everything const& everything) {
  std::ostringstream out;
  for (auto const& [name, array] : everything.arrays()) {
    std::uint64_t hash = 0xcbf29ce484222325ull;
    for (std::byte b : array.bytes())
      hash = (hash ^ static_cast<std::uint64_t>(b)) * 0x100000001b3ull;
    out << "checksum " << name << ' ' << hash << '\n';
  }
  return out.str();
}

/// The lines that begin with "checksum " of this test run again with one thread.
std::string checksums_with_one_thread(std::string const& filter) {
  std::array<char, 4096> text{};
  if (readlink("/proc/self/exe", text.data(), text.size() - 1) <= 0)
    return "the program does not know its own path";
  std::string const command =
      "OMP_NUM_THREADS=1 '" + std::string(text.data()) + "' --gtest_filter=" + filter;
  FILE* const pipe = popen(command.c_str(), "r");
  std::string out;
  while (pipe != nullptr && std::fgets(text.data(), static_cast<int>(text.size()), pipe) != nullptr)
    if (std::string_view(text.data()).starts_with("checksum ")) out += text.data();
  return pipe == nullptr || pclose(pipe) != 0 ? "the run with one thread failed" : out;
}

TEST_P(Dispatch, OneThreadGivesTheBitsOfAll) {
  Everything everything(dtype);
  everything.run(*queue);
  if (memory::Runtime::threads() == 1) {
    std::cout << checksums(everything);
    return;
  }
  EXPECT_EQ(checksums(everything),
            checksums_with_one_thread("Dtypes/Dispatch.OneThreadGivesTheBitsOfAll/" +
                                      std::string(name_of(dtype))));
}

TEST_P(Dispatch, AWorkerQueueGivesTheBitsOfAnInlineOne) {
  Everything here(dtype), there(dtype);
  here.run(*queue);
  there.run(*memory::make_worker_queue("worker"));
  expect_same(here, there);
}

}  // namespace
}  // namespace tessera::kernels::test
