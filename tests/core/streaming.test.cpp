#include "tessera/core/streaming.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tessera {
namespace {

TEST(Streaming, CopiesAnyNumberOfBytesToAnyPlaceAndNothingElse) {
  for (std::size_t bytes :
       {0, 1, 31, 32, 33, 127, 128, 129, 511, 4096, 5001, 16383, 16384, 16511, 65536, 70001})
    for (std::size_t to_shift : {0, 1, 15, 32, 63})
      for (std::size_t from_shift : {0, 1, 33}) {
        std::vector<unsigned char> from(from_shift + bytes), to(to_shift + bytes + 64, 0xA5);
        for (std::size_t i = 0; i < from.size(); ++i)
          from[i] = static_cast<unsigned char>(i * 7 % 251);
        stream_bytes(to.data() + to_shift, from.data() + from_shift, bytes);
        finish_streaming();
        auto const begin = to.begin() + static_cast<std::ptrdiff_t>(to_shift),
                   end = begin + static_cast<std::ptrdiff_t>(bytes);
        EXPECT_TRUE(std::equal(begin, end, from.begin() + static_cast<std::ptrdiff_t>(from_shift)))
            << bytes << " bytes at " << to_shift;
        auto const kept = [](unsigned char byte) { return byte == 0xA5; };
        EXPECT_TRUE(std::all_of(to.begin(), begin, kept) && std::all_of(end, to.end(), kept))
            << bytes << " bytes at " << to_shift;
      }
}

}  // namespace
}  // namespace tessera
