#include "format/detail/direct_writer.hpp"

#include <numeric>

#include "fixture.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// Small and large, aligned and not, across the length of a page: whatever way the pages take.
TEST(DirectWriter, WritesEveryByteWhereItBelongs) {
  ScratchDirectory const dir;
  std::vector<char> data((std::size_t{9} << 20) + 12345);
  std::uint32_t state = 1;
  for (auto& byte : data) byte = static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
  write_file(dir / "x", std::string(data.size() + 4096, '\0'));
  checkpoint::detail::DirectWriter writer(dir / "x");
  std::int64_t at = 0;
  auto const total = static_cast<std::int64_t>(data.size());
  for (std::int64_t const bytes : {std::int64_t{4096}, std::int64_t{6} << 20, std::int64_t{100},
                                   std::int64_t{2} << 20, total}) {
    std::int64_t const count = std::min(bytes, total - at);
    writer.write(data.data() + at, count, at);
    at += count;
  }
  ASSERT_EQ(at, total);
  writer.finish();
  std::string const written = read_file(dir / "x");
  EXPECT_EQ(written.size(), data.size() + 4096);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), written.begin()));
  EXPECT_EQ(written.substr(data.size()), std::string(4096, '\0'));
}

}  // namespace
