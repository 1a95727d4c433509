#include "tessera/topology/node_files.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "mpi_test.hpp"

namespace tessera::topology {
namespace {

namespace fs = std::filesystem;

fs::path folder() {
  fs::path const path = fs::temp_directory_path() /
                        ("node_files." + test::session().broadcast(std::to_string(::getpid())));
  fs::create_directories(path);
  return path;
}

/// More files than one message carries.
TEST(NodeFiles, AreTheSameOpenFilesOnEveryRank) {
  auto const& session = test::session();
  bool const leads = session.info().local_rank == 0;
  fs::path const here = folder();
  std::vector<fs::path> files;
  for (int i = 0; i < 150; ++i) files.push_back(here / ("file " + std::to_string(i)));
  if (leads)
    for (auto const& file : files) std::ofstream(file) << file.filename().string();
  auto opened = open_on_node(session, leads ? files : std::vector<fs::path>());
  EXPECT_EQ(opened.failure, "");
  ASSERT_EQ(opened.names(), files);
  session.broadcast("");
  if (leads) fs::remove_all(here);  // the open files stay, and nothing was opened by name since
  auto const descriptors = opened.release();
  ASSERT_EQ(descriptors.size(), files.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    char text[32] = {};
    ASSERT_GT(::pread(descriptors[i], text, sizeof text - 1, 0), 0);
    EXPECT_EQ(text, files[i].filename().string());
    EXPECT_NE(::fcntl(descriptors[i], F_GETFD) & FD_CLOEXEC, 0);
    ::close(descriptors[i]);
  }
  session.broadcast("");
}

TEST(NodeFiles, SayWhichFileIsMissingOnEveryRank) {
  auto const& session = test::session();
  fs::path const here = folder();
  auto const opened = open_on_node(session, {here / "none"});
  EXPECT_THAT(opened.failure, testing::HasSubstr((here / "none").string() + ": No such file"));
  session.broadcast("");
  if (session.info().local_rank == 0) fs::remove_all(here);
}

TEST(NodeFiles, MayBeNone) { EXPECT_TRUE(open_on_node(test::session(), {}).release().empty()); }

}  // namespace
}  // namespace tessera::topology
