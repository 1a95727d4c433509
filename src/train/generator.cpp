#include "tessera/train/generator.hpp"

#include <algorithm>
#include <cmath>

#include "tessera/core/random.hpp"

namespace tessera::train {
namespace {

constexpr std::uint64_t random_stream = 0x67656e6572617465u;  // "generate"

/// The ids of the @p count largest logits, largest first.
std::vector<std::int32_t> most_likely(std::vector<float> const& logits, std::size_t count) {
  std::vector<std::int32_t> order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
  auto const more_likely = [&](std::int32_t a, std::int32_t b) {
    float const la = logits[static_cast<std::size_t>(a)], lb = logits[static_cast<std::size_t>(b)];
    return la != lb ? la > lb : a < b;
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    more_likely);
  order.resize(count);
  return order;
}

}  // namespace

std::int32_t draw_token(std::vector<float> const& logits, double temperature, std::int64_t top_k,
                        double uniform) {
  auto const order = most_likely(
      logits, top_k > 0 ? std::min(static_cast<std::size_t>(top_k), logits.size()) : logits.size());
  if (temperature <= 0.0) return order[0];
  std::vector<double> weights;
  double sum = 0.0;
  for (std::int32_t const token : order) {
    double const difference =
        logits[static_cast<std::size_t>(token)] - logits[static_cast<std::size_t>(order[0])];
    weights.push_back(std::exp(difference / temperature));
    sum += weights.back();
  }
  double left = uniform * sum;
  for (std::size_t i = 0; i < weights.size(); ++i)
    if ((left -= weights[i]) <= 0.0) return order[i];
  return order.back();
}

std::string_view GrowingText::grow(std::string_view text) {
  constexpr std::string_view replacement = "\xEF\xBF\xBD";
  while (text.ends_with(replacement)) text.remove_suffix(replacement.size());
  return finish(text);
}

std::string_view GrowingText::finish(std::string_view text) {
  auto const more = text.substr(std::min(given_, text.size()));
  given_ = std::max(given_, text.size());
  return more;
}

std::vector<std::int32_t> generate_tokens(ModelContext context, std::vector<std::int32_t> tokens,
                                          SamplingOptions const& options) {
  Philox const random{options.seed, random_stream};
  for (std::int64_t i = 0; i < options.max_new_tokens; ++i) {
    auto const window =
        std::min(static_cast<std::int64_t>(tokens.size()), context.model.max_positions());
    auto const* const first = tokens.data() + static_cast<std::int64_t>(tokens.size()) - window;
    auto const logits =
        context.model.next_token_logits({first, 1, window, 0}, context.weights, context.compute);
    double const uniform = random.uniform(static_cast<std::uint64_t>(i));
    std::int64_t next =
        context.is_root() ? draw_token(logits, options.temperature, options.top_k, uniform) : 0;
    next = comm::all_reduce_value(context.comm, next, comm::ReduceOp::max);
    tokens.push_back(static_cast<std::int32_t>(next));
    if (options.after_token) options.after_token(tokens);
    if (next == options.end_of_text) break;
  }
  return tokens;
}

}  // namespace tessera::train
