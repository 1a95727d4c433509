/// Runs of elements cut into hyperslabs, against a count over all elements.
#include "format/detail/hdf5.hpp"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Hyperslab, CoversARunOnceAndInOrder) {
  std::vector<std::int64_t> const shape{4, 3, 5};
  for (std::int64_t first = 0; first < 60; ++first)
    for (std::int64_t last = first + 1; last <= 60; ++last) {
      std::int64_t at = first;
      auto const slabs = checkpoint::detail::hyperslabs_of(shape, first, last - first);
      EXPECT_LE(slabs.size(), 5u);
      for (auto const& slab : slabs) {
        EXPECT_EQ(slab.first, at);
        for (std::uint64_t i = slab.start[0]; i < slab.start[0] + slab.count[0]; ++i)
          for (std::uint64_t j = slab.start[1]; j < slab.start[1] + slab.count[1]; ++j)
            for (std::uint64_t k = slab.start[2]; k < slab.start[2] + slab.count[2]; ++k)
              EXPECT_EQ(static_cast<std::int64_t>(15 * i + 5 * j + k), at++);
      }
      EXPECT_EQ(at, last);
    }
}

}  // namespace
}  // namespace tessera
