#include "tessera/core/process.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

namespace tessera {
namespace {

TEST(ProcessStat, FieldsCountFromTheLastParenthesis) {
  std::string const tail = " 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 10 20";
  EXPECT_EQ(parse_process_stat("42 (bash) S" + tail), (ProcessStat{'S', 987654, 1}));
  EXPECT_EQ(parse_process_stat("42 (a) Z 9 (b) (c) R" + tail), (ProcessStat{'R', 987654, 1}));
  EXPECT_TRUE(parse_process_stat("42 (bash) Z" + tail)->has_ended());
  EXPECT_TRUE(parse_process_stat("42 (bash) X" + tail)->has_ended());
  EXPECT_FALSE(parse_process_stat("42 (bash) D" + tail)->has_ended());
}

TEST(ProcessStat, CutTextsAreNothing) {
  for (char const* text : {"", "42", "42 (bash)", "42 (bash) S 1 1"})
    EXPECT_EQ(parse_process_stat(text), std::nullopt) << text;
}

TEST(ProcessStat, AChildStartsAfterItsParentAndEndsAsAZombie) {
  auto const own = process_stat(::getpid());
  ASSERT_TRUE(own);
  EXPECT_FALSE(own->has_ended());
  pid_t const child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t end{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &end, WEXITED | WNOWAIT), 0);
  auto const stat = process_stat(child);
  ASSERT_TRUE(stat);
  EXPECT_TRUE(stat->has_ended());
  EXPECT_EQ(stat->state, 'Z');
  EXPECT_GE(stat->started, own->started);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(process_stat(child), std::nullopt);
}

}  // namespace
}  // namespace tessera
