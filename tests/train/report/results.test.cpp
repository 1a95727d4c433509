#include "tessera/train/report/metrics_file.hpp"

#include <gtest/gtest.h>

#include "scratch_files.hpp"

namespace tessera::train {
namespace {

TEST(Results, AreWrittenPerSplitAndMerged) {
  ScratchFiles const files;
  auto const all = [&] { return ConfigTree::read(files.directory() / "all_results.json").dump(); };
  write_results(files.directory(), "train", ConfigTree().set("epoch", 1).set("train_loss", 2.5));
  write_results(files.directory(), "eval", ConfigTree().set("epoch", 2).set("eval_loss", 3.5));
  EXPECT_EQ(ConfigTree::read(files.directory() / "train_results.json").dump(),
            R"({"epoch":1,"train_loss":2.5})");
  EXPECT_EQ(ConfigTree::read(files.directory() / "eval_results.json").dump(),
            R"({"epoch":2,"eval_loss":3.5})");
  EXPECT_EQ(all(), R"({"epoch":2,"train_loss":2.5,"eval_loss":3.5})");

  files.write("all_results.json", "{\"epoch\": ");
  write_results(files.directory(), "eval", ConfigTree().set("eval_loss", 1.5));
  EXPECT_EQ(all(), R"({"eval_loss":1.5})") << "a damaged file is replaced";
}

}  // namespace
}  // namespace tessera::train
