/// GF/s of every way to compute the products of a GPT-2 124M training step; one JSON line a shape.
///
///   OMP_NUM_THREADS=2 build/host/bin/bench.gemm [tokens = 1024] [rounds = 7]
///
/// NN: forward, x [tokens, K] W [K, N].  NT: gradient of the input.  TN: gradient of the weights.
/// The head works on 128 rows.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "gemm/gemm_routes.hpp"
#include "interleaved.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/random.hpp"
#include "tessera/kernels/gemm/gemm.hpp"
#include "tessera/kernels/gemm/gemm_headers.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/runtime.hpp"

namespace {

using namespace tessera;
using kernels::detail::GemmEngine;
using kernels::detail::GemmProblem;
using kernels::detail::GemmRoute;
using kernels::detail::SgemmLibrary;

struct Shape {
  std::string name;
  std::int64_t m, n, k;
  bool ta, tb;
};

std::vector<Shape> shapes_of(std::int64_t tokens) {
  std::vector<Shape> out;
  auto const add = [&](std::string const& name, std::int64_t rows, std::int64_t inner,
                       std::int64_t outer) {
    out.push_back({name + " NN", rows, outer, inner, false, false});
    out.push_back({name + " NT", rows, inner, outer, false, true});
    out.push_back({name + " TN", inner, outer, rows, true, false});
  };
  add("qkv", tokens, 768, 2304);
  add("attention projection", tokens, 768, 768);
  add("fc", tokens, 768, 3072);
  add("fc projection", tokens, 3072, 768);
  out.push_back({"head forward NT", 128, 50257, 768, false, true});
  out.push_back({"head input gradient NN", 128, 768, 50257, false, false});
  out.push_back({"head weight gradient TN", 50257, 768, 128, true, false});
  return out;
}

struct Method {
  std::string name;
  GemmRoute route;
  SgemmLibrary library;
  Dtype in, out;
  bool accumulate;
};

std::vector<Method> methods_of_this_machine() {
  std::vector<Method> out;
  bool const onednn = kernels::detail::has_library(SgemmLibrary::onednn),
             cblas = kernels::detail::has_library(SgemmLibrary::cblas);
  if (onednn)
    out.push_back(
        {"fp32 oneDNN", GemmRoute::direct, SgemmLibrary::onednn, Dtype::fp32, Dtype::fp32, false});
  if (cblas)
    out.push_back(
        {"fp32 CBLAS", GemmRoute::direct, SgemmLibrary::cblas, Dtype::fp32, Dtype::fp32, false});
  auto const library = onednn ? SgemmLibrary::onednn : SgemmLibrary::cblas;
  out.push_back({"bf16 panels", GemmRoute::panels, library, Dtype::bf16, Dtype::bf16, false});
  out.push_back(
      {"bf16 panels += fp32", GemmRoute::panels, library, Dtype::bf16, Dtype::fp32, true});
  out.push_back({"fp16 panels", GemmRoute::panels, library, Dtype::fp16, Dtype::fp16, false});
  if (kernels::detail::has_native_bf16()) {
    out.push_back({"bf16 native", GemmRoute::native, library, Dtype::bf16, Dtype::bf16, false});
    out.push_back(
        {"bf16 native += fp32", GemmRoute::native, library, Dtype::bf16, Dtype::fp32, true});
  }
  return out;
}

/// A buffer whose first numel elements are small numbers in @p dtype.
memory::Buffer operand(std::int64_t numel, Dtype dtype) {
  memory::Buffer out("operand", memory::Purpose::workspace,
                     static_cast<std::size_t>(numel) * size_of(dtype));
  Philox const random{1, 2};
  for (std::int64_t i = 0; i < numel; ++i) {
    float const x = random.uniform(static_cast<std::uint64_t>(i)) - 0.5f;
    if (dtype == Dtype::fp32) static_cast<float*>(out.data())[i] = x;
    if (dtype == Dtype::fp16) static_cast<float16*>(out.data())[i] = float16(x);
    if (dtype == Dtype::bf16) static_cast<bfloat16*>(out.data())[i] = bfloat16(x);
  }
  return out;
}

void measure(Shape const& s, std::vector<Method> const& methods, GemmEngine& engine, int rounds) {
  std::vector<memory::Buffer> buffers;
  std::vector<std::function<void()>> alternatives;
  for (auto const& w : methods) {
    buffers.push_back(operand(s.m * s.k, w.in));
    buffers.push_back(operand(s.k * s.n, w.in));
    buffers.push_back(operand(s.m * s.n, w.out));
    GemmProblem const p{s.m,
                        s.n,
                        s.k,
                        s.ta,
                        s.tb,
                        w.accumulate,
                        1.0f,
                        w.in,
                        w.out,
                        buffers.back().data(),
                        buffers[buffers.size() - 3].data(),
                        buffers[buffers.size() - 2].data(),
                        nullptr};
    alternatives.push_back([&engine, p, w] { engine.run(p, w.route, w.library); });
  }
  auto const timings = bench::interleaved(alternatives, rounds);
  ConfigTree line = ConfigTree::object();
  line.set("shape", s.name).set("m", s.m).set("n", s.n).set("k", s.k);
  line.set("threads", memory::Runtime::threads());
  double const operations =
      2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  for (std::size_t i = 0; i < methods.size(); ++i)
    line.set(methods[i].name, std::int64_t(operations / timings[i].median * 1e-9));
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::int64_t const tokens = argc > 1 ? std::atoll(argv[1]) : 1024;
  int const rounds = argc > 2 ? std::atoi(argv[2]) : 7;
  memory::Runtime const runtime{{}};
  std::fprintf(stderr, "%s, %d threads, GF/s (median of %d interleaved rounds)\n",
               kernels::gemm_library().c_str(), memory::Runtime::threads(), rounds);
  GemmEngine engine;
  auto const methods = methods_of_this_machine();
  for (auto const& shape : shapes_of(tokens)) measure(shape, methods, engine, rounds);
}
