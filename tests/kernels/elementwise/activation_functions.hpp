#pragma once
/// Activation functions in double precision, and their slopes by central differences.

#include <cmath>
#include <functional>
#include <map>

#include "tessera/kernels/elementwise/activation.hpp"

namespace tessera::kernels::test {

using Function = std::function<double(double)>;
inline double logistic(double x) { return 1.0 / (1.0 + std::exp(-x)); }

inline std::map<Activation, Function> const functions = {
    {Activation::gelu_new,
     [](double x) {
       return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
     }},
    {Activation::gelu, [](double x) { return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0))); }},
    {Activation::silu, [](double x) { return x * logistic(x); }},
    {Activation::relu, [](double x) { return std::max(x, 0.0); }},
    {Activation::quick_gelu, [](double x) { return x * logistic(1.702 * x); }},
    {Activation::relu_squared, [](double x) { return std::pow(std::max(x, 0.0), 2); }}};

inline double slope(Function const& f, double x) {
  double const h = 1e-5;
  return (f(x + h) - f(x - h)) / (2.0 * h);
}

}  // namespace tessera::kernels::test
