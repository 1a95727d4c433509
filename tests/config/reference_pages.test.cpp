#include "tessera/config/option_table.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

namespace tessera::config {
namespace {

/// The stored page is what the table generates; TESSERA_WRITE_PAGES=1 writes it again.
void expect_page(std::string const& name, std::string const& generated) {
  std::string const file = std::string(TESSERA_TEST_DATA) + "/../docs/reference/" + name;
  if (std::getenv("TESSERA_WRITE_PAGES")) std::ofstream(file) << generated;
  std::ifstream in(file);
  std::string const stored((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  EXPECT_EQ(stored, generated) << "docs/reference/" << name
                               << " is not what the option table says; run this test with "
                                  "TESSERA_WRITE_PAGES=1 and commit the page";
}

TEST(ReferencePages, Options) { expect_page("options.md", arguments_page()); }
TEST(ReferencePages, DeepSpeedConfig) { expect_page("deepspeed-config.md", deepspeed_page()); }

}  // namespace
}  // namespace tessera::config
