// Zip directories that lie are refused.
#include <zlib.h>

#include "fixture.hpp"
#include "interchange/detail/zip_reader.hpp"

namespace tessera::checkpoint::detail {
namespace {

using test::ScratchDirectory;
using testing::HasSubstr;

std::string little(std::uint64_t v, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out.push_back(i < 8 ? static_cast<char>(v >> (8 * i)) : char{});
  return out;
}

/// A member with every number that a liar may set; -1: the true one.
struct Member {
  std::string name, content;
  std::int64_t offset = -1, bytes = -1, stored = -1, method = 0, flags = 0;
  std::string local_name = "";
};

struct Archive {
  std::vector<Member> members;
  std::int64_t count = -1, directory_bytes = -1, directory_offset = -1;
  bool zip64 = false;
  std::string comment = "", tail = "";

  std::string bytes() const {
    std::string out, directory;
    for (auto const& m : members) {
      std::uint64_t const at = out.size();
      std::string const& local = m.local_name.empty() ? m.name : m.local_name;
      std::string const head = little(20, 2) + little(static_cast<std::uint64_t>(m.flags), 2) +
                               little(static_cast<std::uint64_t>(m.method), 2) + little(0, 4) +
                               little(crc32(0, reinterpret_cast<Bytef const*>(m.content.data()),
                                            static_cast<uInt>(m.content.size())),
                                      4);
      out += "PK\3\4" + head + little(m.content.size(), 4) + little(m.content.size(), 4) +
             little(local.size(), 2) + little(3, 2) + local + "pad" + m.content;
      auto const number = [](std::int64_t given, std::uint64_t real) {
        return given < 0 ? real : static_cast<std::uint64_t>(given);
      };
      std::uint64_t const size = number(m.bytes, m.content.size()),
                          stored = number(m.stored, number(m.bytes, m.content.size())),
                          offset = number(m.offset, at);
      std::string const extra = zip64 ? little(1, 2) + little(24, 2) + little(size, 8) +
                                            little(stored, 8) + little(offset, 8)
                                      : "";
      directory += "PK\1\2" + little(45, 2) + head + little(zip64 ? 0xFFFFFFFF : stored, 4) +
                   little(zip64 ? 0xFFFFFFFF : size, 4) + little(m.name.size(), 2) +
                   little(extra.size(), 2) + little(0, 10) +
                   little(zip64 ? 0xFFFFFFFF : offset, 4) + m.name + extra;
    }
    std::uint64_t const start = out.size();
    auto const number = [](std::int64_t given, std::uint64_t real) {
      return given < 0 ? real : static_cast<std::uint64_t>(given);
    };
    std::uint64_t const n = number(count, members.size()),
                        length = number(directory_bytes, directory.size()),
                        at = number(directory_offset, start);
    out += directory;
    if (zip64) {
      std::uint64_t const end = out.size();
      out += "PK\6\6" + little(44, 8) + little(45, 2) + little(45, 2) + little(0, 8) +
             little(n, 8) + little(n, 8) + little(length, 8) + little(at, 8);
      out += "PK\6\7" + little(0, 4) + little(end, 8) + little(1, 4);
    }
    out += std::string("PK\5\6") + little(0, 4) + little(zip64 ? 0xFFFF : n, 2) +
           little(zip64 ? 0xFFFF : n, 2) + little(zip64 ? 0xFFFFFFFF : length, 4) +
           little(zip64 ? 0xFFFFFFFF : at, 4) + little(comment.size(), 2) + comment + tail;
    return out;
  }
};

class Zip : public testing::Test {
 protected:
  File write(std::string const& bytes) {
    auto const path = scratch_ / ("a" + std::to_string(++count_) + ".pt");
    std::ofstream(path, std::ios::binary) << bytes;
    return File::open_read(path);
  }
  void expect_refused(Archive const& archive, std::string const& reason) {
    SCOPED_TRACE(reason);
    File const file = write(archive.bytes());
    EXPECT_THAT([&] { ZipReader{file}; }, testing::ThrowsMessage<DataError>(HasSubstr(reason)));
  }
  ScratchDirectory scratch_;
  int count_ = 0;
};

TEST_F(Zip, ReadsBothForms) {
  for (bool const zip64 : {false, true}) {
    Archive const archive{
        .members = {{"a/data.pkl", "pickle"}, {"a/data/0", std::string(100, 'x')}, {"a/empty", ""}},
        .zip64 = zip64,
        .comment = "a comment"};
    File const file = write(archive.bytes());
    ZipReader const zip(file);
    ASSERT_EQ(zip.members().size(), 3u);
    auto const* member = zip.find("a/data/0");
    ASSERT_NE(member, nullptr);
    std::string content(100, '\0');
    file.read(content.data(), member->bytes, member->offset);
    EXPECT_EQ(content, std::string(100, 'x'));
    EXPECT_NO_THROW(check_crc(file, *member));
    EXPECT_EQ(zip.find("a/none"), nullptr);
  }
}

TEST_F(Zip, RefusesLies) {
  std::vector<Member> const good = {{"a/1", std::string(50, 'x')}, {"a/2", std::string(50, 'y')}};
  auto const changed = [&](auto change) {
    auto members = good;
    change(members[1]);
    return Archive{.members = members};
  };
  expect_refused(changed([](Member& m) { m.name = "a/1"; }), "is listed twice");
  expect_refused(changed([](Member& m) { m.offset = 0; }), "overlaps");
  expect_refused(changed([](Member& m) { m.offset = 10; }), "overlaps");
  expect_refused(changed([](Member& m) { m.offset = 1 << 20; }), "over the end");
  expect_refused(changed([](Member& m) { m.bytes = 1 << 20; }), "over the end");
  expect_refused(changed([](Member& m) { m.bytes = 51; }), "over the end");
  expect_refused(changed([](Member& m) { m.stored = 49; }), "two sizes");
  expect_refused(changed([](Member& m) { m.method = 8; }), "compressed");
  expect_refused(changed([](Member& m) { m.flags = 1; }), "encrypted");
  expect_refused(changed([](Member& m) { m.local_name = "b/2"; }), "disagrees");
  expect_refused({.members = {{"a/1", std::string(50, 'x'), -1, 60}, good[1]}}, "overlaps");
  expect_refused({.members = good, .count = 1}, "belong to no member");
  expect_refused({.members = good, .count = 3}, "too small");
  expect_refused({.members = good, .count = 60000}, "too small");
  expect_refused({.members = good, .directory_bytes = 5}, "does not end");
  expect_refused({.members = good, .directory_offset = 1 << 30}, "does not end");
  expect_refused({.members = good, .count = std::int64_t{1} << 60, .zip64 = true}, "at most");
  expect_refused({.members = good, .directory_bytes = std::int64_t{1} << 60, .zip64 = true},
                 "at most");
  expect_refused({.members = {{"a/1", "x", std::int64_t{1} << 62}}, .zip64 = true}, "over the end");
  expect_refused({.members = good, .tail = "rest"}, "follow the end");
}

TEST_F(Zip, RefusesEveryTruncation) {
  std::string const whole =
      Archive{.members = {{"a/1", std::string(30, 'x')}}, .zip64 = true}.bytes();
  for (std::size_t n = 0; n < whole.size(); ++n) {
    File const file = write(whole.substr(0, n));
    EXPECT_THROW(ZipReader{file}, DataError) << n;
    std::filesystem::remove(file.path());
  }
}

TEST_F(Zip, NoticesAFlippedBit) {
  std::string bytes = Archive{.members = {{"a/1", std::string(30, 'x')}}}.bytes();
  bytes[bytes.find("xxx") + 7] = 'y';
  File const file = write(bytes);
  ZipReader const zip(file);
  EXPECT_THAT([&] { check_crc(file, zip.members()[0]); },
              testing::ThrowsMessage<DataError>(HasSubstr("member a/1 has CRC-32 ")));
}

}  // namespace
}  // namespace tessera::checkpoint::detail
