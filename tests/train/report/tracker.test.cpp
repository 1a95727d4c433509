#include "tessera/train/report/tracker.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "tessera/train/report/protobuf.hpp"

namespace tessera::train {
namespace {

TEST(Crc32, HasTheCheckValuesOfItsPolynomials) {
  EXPECT_EQ(protobuf::crc32("123456789", 0xEDB88320u), 0xCBF43926u) << "CRC-32/ISO-HDLC";
  EXPECT_EQ(protobuf::crc32("123456789", 0x82F63B78u), 0xE3069283u) << "CRC-32/ISCSI";
}

TEST(RunId, TellsDirectoriesAndStartsApart) {
  RunId const first = run_id("out/run", 4);
  std::this_thread::sleep_for(std::chrono::microseconds(10));  // another time of start
  RunId const again = run_id("out/../out/run", 4), other = run_id("out/other", 4);
  EXPECT_EQ(first.text().size(), 8u);
  EXPECT_EQ(first.of_directory, again.of_directory);
  EXPECT_NE(first.of_start, again.of_start);
  EXPECT_NE(first.of_directory, other.of_directory);
  EXPECT_EQ(first.text().find_first_not_of("0123456789abcdef"), std::string::npos);
}

}  // namespace
}  // namespace tessera::train
