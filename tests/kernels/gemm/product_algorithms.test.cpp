#include "gemm/product_algorithms.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tessera::kernels::detail {
namespace {

using Problem = std::vector<std::int64_t>;

constexpr AlgorithmWords first{0x1f, 0, 3, 4, 5, 6, 7, 0xffffffffffffffff}, second{1, 2, 3};

class Algorithms : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove(file_); }
  void TearDown() override { std::filesystem::remove(file_); }
  void write(std::string const& text) const {
    std::ofstream(file_, std::ios::app | std::ios::binary) << text;
  }
  std::string const file_ = ::testing::TempDir() + "product_algorithms.txt";
};

TEST_F(Algorithms, AreFoundInLaterRunsOfTheSameMachine) {
  ProductAlgorithms here(file_, "NVIDIA H200, driver 13000, cuBLASLt 130100");
  EXPECT_FALSE(here.find(Problem{8, 16, -1})) << "the file does not exist";
  here.add(Problem{8, 16, -1}, first);
  here.add(Problem{8, 17}, second);
  EXPECT_EQ(here.find(Problem{8, 16, -1}), first);
  ProductAlgorithms const again(file_, "NVIDIA H200, driver 13000, cuBLASLt 130100"),
      elsewhere(file_, "NVIDIA H200, driver 13000, cuBLASLt 130200");
  EXPECT_EQ(again.find(Problem{8, 16, -1}), first);
  EXPECT_EQ(again.find(Problem{8, 17}), second);
  EXPECT_FALSE(again.find(Problem{8}));
  EXPECT_FALSE(elsewhere.find(Problem{8, 17}));
}

TEST_F(Algorithms, OfTheFirstOfSeveralLinesCount) {
  ProductAlgorithms(file_, "m").add(Problem{1}, first);
  ProductAlgorithms(file_, "m").add(Problem{1}, second);
  EXPECT_EQ(ProductAlgorithms(file_, "m").find(Problem{1}), first);
}

TEST_F(Algorithms, OfDamagedLinesAreSkipped) {
  write("m\t1 2\t1 2 3 4 5 6 7\nm\t1 x\t1 2 3 4 5 6 7 8\nm\t\t1 2 3 4 5 6 7 8\nm\n\n");
  write("m\t3\t1 2 3 4 5 6 7 8 9\nm\t4\t1 2 3 0 0 0 0 0\nm\t5\t1 2");
  ProductAlgorithms const read(file_, "m");
  for (Problem const& damaged : {Problem{1, 2}, Problem{1}, Problem{}, Problem{3}, Problem{5}})
    EXPECT_FALSE(read.find(damaged));
  EXPECT_EQ(read.find(Problem{4}), second);
}

TEST_F(Algorithms, AreUsedWhereTheFileCannotBeWritten) {
  ProductAlgorithms nowhere(::testing::TempDir() + "no_such_directory/file.txt", "m");
  nowhere.add(Problem{1}, first);
  EXPECT_EQ(nowhere.find(Problem{1}), first);
}

TEST(Fastest, IsTheFirstThatIsAboutAsFastAsAny) {
  EXPECT_EQ(fastest_of({1.0}), 0u);
  EXPECT_EQ(fastest_of({1.01, 1.0, 2.0}), 0u);
  EXPECT_EQ(fastest_of({1.5, 1.3, 1.0, 1.01}), 2u);
}

}  // namespace
}  // namespace tessera::kernels::detail
