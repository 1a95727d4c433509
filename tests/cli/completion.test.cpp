#include "commands.hpp"

#include <gtest/gtest.h>

#include "launch/run_program.hpp"
#include "scratch_files.hpp"

namespace tessera::cli {
namespace {

using namespace std::chrono_literals;

/// bash itself completes: the answer of @p function for the words, one per line. The directory
/// holds the folder run_1, the file run.json and what the script needs.
std::string completed(std::vector<std::string> const& typed,
                      std::string const& function = "_tessera") {
  Command app("tessera", "tools");
  bool flag = false;
  std::vector<std::string> rest;
  auto& checkpoint = app.add_command("checkpoint", "");
  checkpoint.add_command("ls", "").add("--json", flag, "");
  checkpoint.add_command("verify", "").add("--quick", flag, "");
  std::string text;
  auto& plot = app.add_command("plot", "");
  plot.add("run_directory DIR", text, "");
  plot.add("--output PATH", text, "");
  auto& submit = app.add_command("submit", "");
  submit.add("template TEMPLATE", text, "");
  submit.add("--dtype", text, "").one_of({"fp32", "bf16", "fp16"});
  submit.add_rest("arguments ARGUMENTS", rest, "", Command::Rest::own);
  ScratchFiles const files;
  files.write("run.json", "");
  std::filesystem::create_directories(files.directory() / "run_1");
  for (auto const* shipped : {"debug.sh", "requeue.sh", "sites/alps.conf"}) {
    auto const file = std::filesystem::path("share/tessera/slurm") / shipped;
    std::filesystem::create_directories((files.directory() / file).parent_path());
    files.write(file.string(), "");
  }
  std::filesystem::create_directories(files.directory() / "bin");
  files.write("bin/tessera", "");
  std::filesystem::permissions(files.directory() / "bin/tessera",
                               std::filesystem::perms::owner_all);
  std::string script = bash_completion(app) + "cd " + files.directory().string() +
                       "; PATH=$PWD/bin:$PATH; COMP_WORDS=(program";
  for (auto const& word : typed) script += " '" + word + "'";
  script += "); COMP_CWORD=" + std::to_string(typed.size()) + "; " + function +
            "; printf '%s\\n' \"${COMPREPLY[@]}\"\n";
  return output_of({"bash", files.write("completion.sh", script)}, 20s);
}

TEST(Completion, OffersTheWordsOfEachLevel) {
  EXPECT_EQ(completed({"ch"}), "checkpoint\n");
  EXPECT_EQ(completed({"checkpoint", ""}), "--help\nls\nverify\n");
  EXPECT_EQ(completed({"checkpoint", "v"}), "verify\n");
  EXPECT_EQ(completed({"checkpoint", "verify", "--q"}), "--quick\n");
  EXPECT_EQ(completed({"plot", "--o"}), "--output\n");
}

TEST(Completion, OffersFilesDirectoriesAndValuesWhereTheyBelong) {
  EXPECT_EQ(completed({"plot", "ru"}), "run_1\n") << "a directory";
  EXPECT_EQ(completed({"plot", "run_1", "--output", "ru"}), "run.json\nrun_1\n") << "any file";
  EXPECT_EQ(completed({"plot", "--output", "=", "run."}), "run.json\n");
  EXPECT_EQ(completed({"submit", "--dtype", ""}), "fp32\nbf16\nfp16\n");
  EXPECT_EQ(completed({"submit", "--dtype", "=", "b"}), "bf16\n");
}

TEST(Completion, OffersTheInstalledJobTemplates) {
  EXPECT_EQ(completed({"submit", ""}), "debug\nrequeue\n");
  EXPECT_EQ(completed({"submit", "--dtype", "fp32", "d"}), "debug\n");
  EXPECT_EQ(completed({"submit", "run"}), "run.json\nrun_1\n") << "or the path of a file";
  EXPECT_EQ(completed({"submit", "debug", "--", "--do_tr"}), "--do_train\n");
}

TEST(Completion, KnowsTheOtherPrograms) {
  EXPECT_EQ(completed({"--optim", ""}, "_tessera_train").substr(0, 5), "adamw");
  EXPECT_EQ(completed({"--train_file", "run."}, "_tessera_train"), "run.json\n");
  EXPECT_EQ(completed({"run."}, "_tessera_train"), "run.json\n");
  EXPECT_EQ(completed({"--max_s"}, "_zero_to_fp32"), "--max_shard_size\n");
  EXPECT_EQ(completed({"ru"}, "_zero_to_fp32"), "run_1\n");
  EXPECT_EQ(completed({"run_1", "x", "--dtype", "f"}, "_zero_to_fp32"), "fp32\nfp16\n");
}

}  // namespace
}  // namespace tessera::cli
