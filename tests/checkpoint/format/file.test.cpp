#include "format/detail/file.hpp"

#include "fixture.hpp"

using namespace tessera;
using namespace tessera::test;
using namespace tessera::checkpoint::detail;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

TEST(File, ReadsAndWritesAtOffsets) {
  ScratchDirectory const dir;
  File file = File::create(dir / "x");
  file.write("world", 5, 6);
  file.write("hello ", 6, 0);
  EXPECT_EQ(file.size(), 11);
  file.sync();
  file.close();
  EXPECT_THAT(message_of<IoError>([&] { File::create(dir / "x"); }),
              HasSubstr(concat("cannot create ", (dir / "x").string(), ": File exists")));
  std::string text(5, ' ');
  File const again = File::open_read(dir / "x");
  again.read(text.data(), 5, 6);
  EXPECT_EQ(text, "world");
  EXPECT_THAT(message_of<DataError>([&] { again.read(text.data(), 5, 7); }),
              HasSubstr("x ends at byte 11, 1 bytes before it should"));
}

TEST(File, OpensRegularFilesAndLinksOnlyWhereAsked) {
  ScratchDirectory const dir;
  write_file(dir / "x", "text");
  fs::create_symlink("x", dir / "link");
  EXPECT_EQ(File::open_read(dir / "link").size(), 4);
  EXPECT_THAT(message_of<IoError>([&] { File::open_read(dir / "link", File::Links::refuse); }),
              HasSubstr(concat("cannot open ", (dir / "link").string())));
  EXPECT_THAT(message_of<DataError>([&] { File::open_read(dir.path()); }),
              HasSubstr("not a regular file"));
  EXPECT_THROW(File::open_read(dir / "none"), IoError);
}

TEST(PendingFile, HasItsNameOnlyWhenItIsComplete) {
  ScratchDirectory const dir;
  {
    PendingFile pending(dir / "model");
    pending.file().write("half", 4, 0);
    EXPECT_FALSE(fs::exists(dir / "model"));
  }
  EXPECT_TRUE(fs::is_empty(dir.path())) << "an unfinished file is removed";
  PendingFile pending(dir / "model");
  pending.file().write("complete", 8, 0);
  pending.commit();
  EXPECT_EQ(read_file(dir / "model"), "complete");
}

TEST(PendingFile, LeftoversOfEndedProcessesAreRemoved) {
  ScratchDirectory const dir;
  fs::path temporary;
  {
    PendingFile const pending(dir / "model");
    temporary = pending.temporary_path();
    EXPECT_THAT(remove_leftovers(dir.path(), [](auto const&) { return true; }), ElementsAre())
        << "this process lives";
  }
  std::string name = temporary.filename().string();
  auto const own = std::to_string(::getpid());
  ASSERT_NE(name.find(own), std::string::npos) << name;
  name.replace(name.find(own), own.size(), "999999999");
  write_file(dir / name, "half");
  EXPECT_THAT(remove_leftovers(dir.path(), [](auto const& final) { return final != "model"; }),
              ElementsAre());
  EXPECT_THAT(remove_leftovers(dir.path(), [](auto const& final) { return final == "model"; }),
              ElementsAre(name));
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(ReadText, IsBounded) {
  ScratchDirectory const dir;
  write_file(dir / "x", "12345");
  EXPECT_EQ(read_text(dir / "x", 5), "12345");
  EXPECT_THAT(message_of<DataError>([&] { read_text(dir / "x", 4); }), HasSubstr("x"));
}

TEST(PlainName, IsNoPath) {
  for (auto const* name : {"a", "shard_00000.h5", "a b", "a..b"}) EXPECT_TRUE(is_plain_name(name));
  for (std::string const& name :
       {std::string(), std::string("."), std::string(".."), std::string(".x"), std::string("a/b"),
        std::string("/a"), std::string("a\0b", 3)})
    EXPECT_FALSE(is_plain_name(name)) << name;
}

}  // namespace
