// Pickles are read as data; hostile ones end in a DataError, quickly and in bounded memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <string>

#include "interchange/detail/pickle_reader.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint::detail {
namespace {

using testing::HasSubstr;
using Kind = Pickle::Kind;

std::string const start("\x80\x02", 2);

std::string u32(std::uint32_t v) {
  std::string out;
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>(v >> (8 * i)));
  return out;
}
std::string text(std::string const& v) {
  return "X" + u32(static_cast<std::uint32_t>(v.size())) + v;
}
Pickle parse(std::string const& body) { return Pickle(start + body, "test.pt"); }
std::string repeated(std::string const& part, std::size_t count) {
  std::string out;
  out.reserve(part.size() * count);
  for (std::size_t i = 0; i < count; ++i) out += part;
  return out;
}

TEST(Pickle, ReadsScalars) {
  auto const p = parse("(NK\x07M\x01\x02J" + u32(0xFFFFFFFE) +
                       "\x8a\x03\xFF\xFF\xFE"
                       "G" +
                       std::string("\x3f\xf8\0\0\0\0\0\0", 8) + "\x88\x89" + text("ab") + "t.");
  auto const t = p.root();
  ASSERT_EQ(t.size(), 9u);
  EXPECT_TRUE(t[0].is_none());
  EXPECT_EQ(t[1].as_int(), 7);
  EXPECT_EQ(t[2].as_int(), 513);
  EXPECT_EQ(t[3].as_int(), -2);
  EXPECT_EQ(t[4].as_int(), -65537);
  EXPECT_EQ(t[5].as_number(), 1.5);
  EXPECT_TRUE(t[6].as_bool());
  EXPECT_FALSE(t[7].as_bool());
  EXPECT_EQ(t[8].as_text(), "ab");
}

TEST(Pickle, ReadsSharedAndCyclicContainers) {
  auto const p = parse("}q\1(" + text("a") + "]q\2(K\1h\2eX" + u32(1) + "bh\2u.");
  auto const root = p.root();
  EXPECT_EQ(root.at("a").id(), root.at("b").id());
  EXPECT_EQ(root.at("a")[1].id(), root.at("a").id()) << "a list that holds itself";
  EXPECT_THROW(root.to_tree(), DataError);
}

TEST(Pickle, CallsAreRecordsOnly) {
  auto const marker = std::filesystem::temp_directory_path() / "tessera-pickle-ran";
  std::filesystem::remove(marker);
  std::string const command = text("touch " + marker.string());
  for (std::string const& body :
       {"cos\nsystem\n" + command + "\x85R.", "cposix\nsystem\n" + command + "\x85\x81.",
        "c__builtin__\neval\n" + command + "\x85R}b."}) {
    auto const p = parse(body);
    ASSERT_EQ(p.root().kind(), Kind::object);
    EXPECT_FALSE(p.root().is_dict());
    EXPECT_THROW(p.root().as_int(), DataError);
    EXPECT_THAT(p.root().to_tree().as_string(), HasSubstr("<"));
  }
  EXPECT_FALSE(std::filesystem::exists(marker)) << "a pickle ran a command";
}

TEST(Pickle, OrderedDictsKeepTheirMembersAndTheirState) {
  auto const p =
      parse("ccollections\nOrderedDict\n)R(" + text("k") + "K\5u}" + text("_metadata") + "Nsb.");
  EXPECT_EQ(p.root().at("k").as_int(), 5);
  EXPECT_EQ(p.root().state().pairs(), 1u);
}

TEST(Pickle, RefusesWhatIsNotAPickleOfTorch) {
  for (auto const& [body, reason] : std::vector<std::pair<std::string, std::string>>{
           {"", "truncated"},
           {".", "ends without a value"},
           {"N", "truncated"},
           {"a.", "empty stack"},
           {"Na.", "empty stack"},
           {"NNa.", "members"},
           {"t.", "no mark"},
           {"(K\1(\x85.", "empty stack"},
           {"h\7.", "recalls"},
           {"j" + u32(99) + ".", "recalls"},
           {"q\1.", "empty stack"},
           {"NNR.", "no global"},
           {"N}b.", "no object"},
           {"(ios\nsystem\n.", "opcode 105"},
           {"\x82\1.", "opcode 130"},
           {"Pid\n.", "opcode 80"},
           {"X" + u32(0xFFFFFFFF) + "a.", "truncated"},
           {"\x8b" + u32(0x7FFFFFFF) + "a.", "truncated"},
           {"B" + u32(0x80000000) + ".", "truncated"},
           {"cos", "truncated"},
           {"cos\nsystem", "truncated"},
           {"}(K\1u.", "members"},
           {"NN\x93.", "no text"},
           {"\x80\1N.", "protocol 1"}}) {
    SCOPED_TRACE(testing::PrintToString(body));
    EXPECT_THAT([&] { parse(body); }, testing::ThrowsMessage<DataError>(
                                          testing::AllOf(HasSubstr("test.pt"), HasSubstr(reason))));
  }
}

TEST(Pickle, EveryPrefixIsRefused) {
  std::string const whole = start + "}q\1(" + text("a") + "cos\nsystem\n" + text("x") + "\x85R" +
                            text("b") + "(K\1M\2\1J" + u32(3) + "tu.";
  EXPECT_NO_THROW(Pickle(whole, "whole"));
  for (std::size_t n = 0; n < whole.size(); ++n)
    EXPECT_THROW(Pickle(whole.substr(0, n), "prefix"), DataError) << n;
}

TEST(Pickle, LimitsHoldAndMemoryIsBounded) {
  rusage before = {}, after = {};
  getrusage(RUSAGE_SELF, &before);
  EXPECT_THAT([] { parse(repeated("]", 3'000'000) + "."); },
              testing::ThrowsMessage<DataError>(HasSubstr("has more than 2000000 values")));
  EXPECT_THAT([] { parse(repeated("(", 3'000'000) + "."); },
              testing::ThrowsMessage<DataError>(HasSubstr("has too many marks")));
  EXPECT_THAT([] { parse("Nq\1" + repeated("h\1", 9'000'000) + "."); },
              testing::ThrowsMessage<DataError>(HasSubstr("has more than 8000000 references")));
  EXPECT_THAT([] { Pickle(std::string(Pickle::largest + 1, 'N'), "large"); },
              testing::ThrowsMessage<DataError>(HasSubstr("at most")));
  std::string far;
  for (std::uint32_t i = 0; i < 100'000; ++i) far += "r" + u32(0xFFFFFFFF - i * 40'000);
  EXPECT_NO_THROW(parse("N" + far + "."));
  auto const deep = parse(")" + repeated("\x85", 1'000'000) + ".");
  EXPECT_THAT(
      [&] { deep.root().to_tree(); },
      testing::ThrowsMessage<DataError>(HasSubstr("values are nested deeper than 64 levels")));
  std::string bomb = "]q\0";
  for (int level = 1; level < 40; ++level)
    bomb += "](" + repeated(std::string("h") + static_cast<char>(level - 1), 10) + "eq" +
            static_cast<char>(level);
  auto const laughs = parse(std::string("]q\0", 3) + bomb.substr(2) + ".");
  EXPECT_THROW(laughs.root().to_tree(), DataError);
  getrusage(RUSAGE_SELF, &after);
#if !defined(__SANITIZE_ADDRESS__)
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 384 * 1024) << "KiB";
#endif
}

TEST(Pickle, DictsWithAKeyTwiceOrOfAnotherKindAreNoNameTables) {
  EXPECT_THROW(parse("}(" + text("a") + "K\1" + text("a") + "K\2u.")
                   .root()
                   .each_member([](std::string const&, PickleValue) {}),
               DataError);
  EXPECT_THROW(parse("}(K\1K\1u.").root().each_member([](std::string const&, PickleValue) {}),
               DataError);
}

}  // namespace
}  // namespace tessera::checkpoint::detail
