#include "detail/kept_graphs.hpp"

#include <gtest/gtest.h>

#include <string>

namespace tessera::memory::detail {
namespace {

LaunchRecord record_of(std::string const& launches) {
  LaunchRecord out;
  out.add(launches.data(), launches.size());
  return out;
}

/// Runs launches as a queue does. True: a kept graph was launched again.
bool run(KeptGraphs& kept, std::string const& launches) {
  auto const record = record_of(launches);
  if (kept.are_likely_to_match() && kept.find(record)) return true;
  kept.place_for(record).launches = record;
  return false;
}

std::string replays_of(KeptGraphs& kept, std::string const& works) {
  std::string out;
  for (char const work : works) out += run(kept, std::string(1, work)) ? 'r' : 'c';
  return out;
}

TEST(KeptGraphs, OneServesWorkThatRepeats) {
  KeptGraphs kept;
  EXPECT_EQ(replays_of(kept, "aaaa"), "crrr");
  EXPECT_EQ(kept.graphs().size(), 1u);
}

TEST(KeptGraphs, OneServesWorkThatDiffersEachTimeAndIsNotComparedBeforehand) {
  KeptGraphs kept;
  EXPECT_EQ(replays_of(kept, "abcdefghijklmnop"), std::string(16, 'c'));
  EXPECT_EQ(kept.graphs().size(), 1u);
  EXPECT_FALSE(kept.are_likely_to_match());
  EXPECT_EQ(replays_of(kept, "xxxx"), "ccrr") << "settled again";
}

TEST(KeptGraphs, AreAddedWhileLaunchesComeBack) {
  KeptGraphs two;
  EXPECT_EQ(replays_of(two, "abababab"), "ccccrrrr");
  EXPECT_EQ(two.graphs().size(), 2u);
  KeptGraphs four;
  EXPECT_EQ(replays_of(four, "abcdabcdabcdabcdabcdabcd").substr(20), "rrrr");
  EXPECT_EQ(four.graphs().size(), 4u);
  KeptGraphs five;
  EXPECT_EQ(replays_of(five, "abcdeabcdeabcdeabcdeabcde"), std::string(25, 'c'));
  EXPECT_EQ(five.graphs().size(), KeptGraphs::max_graphs);
}

TEST(KeptGraphs, OfWorkWithUnrecordedLaunchesAreNotComparedAgain) {
  KeptGraphs kept;
  run(kept, "a");
  kept.stop_comparing();
  EXPECT_EQ(replays_of(kept, "aaaa"), "cccc");
}

TEST(KeptGraphs, MatchNothingUntilTheirCaptureWasLaunched) {
  KeptGraphs kept;
  kept.place_for(record_of("a"));
  EXPECT_EQ(kept.find(record_of("a")), nullptr);
}

}  // namespace
}  // namespace tessera::memory::detail
