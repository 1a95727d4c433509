#include "detail/resolvers.hpp"

#include <algorithm>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::config::detail {

std::string batch_problem(std::int64_t total, std::vector<BatchFactor> const& factors) {
  std::vector<std::string> shown;
  std::int64_t product = 1;
  for (auto const& factor : factors) {
    shown.push_back(factor.size > 0 ? concat(factor.name, " ", factor.size) : factor.name);
    product *= std::max<std::int64_t>(1, factor.size);
  }
  bool const complete = std::ranges::none_of(factors, [](auto const& f) { return f.size <= 0; });
  return concat("train_batch_size is ", total, ", but it must be ", join(shown, " * "),
                complete ? " = " : ", a multiple of ", product, "; change one of them",
                complete ? ", or leave one out to have it derived" : "");
}

}  // namespace tessera::config::detail
