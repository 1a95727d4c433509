#include "tessera/train/step/stop_request.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <thread>
#include <vector>

#include "mpi_test.hpp"
#include "recording_collectives.hpp"
#include "tessera/comm/compose/host_collectives.hpp"

namespace tessera::train {
namespace {

struct Check : ::testing::Test {
  /// The calls of @p layers layers at which this rank was asked.
  std::vector<int> questions(double previous_seconds, int layers) {
    std::vector<int> out;
    check.begin_step(previous_seconds);
    for (layer = 1; layer <= layers; ++layer) {
      // A rank is asked once per second of the clock.
      if (layer == slow_layer) std::this_thread::sleep_for(std::chrono::milliseconds(1050));
      std::size_t const before = recording->records().size();
      check.between_layers();
      if (recording->records().size() > before) out.push_back(layer);
    }
    return out;
  }

  std::unique_ptr<comm::RecordingCollectives> recording =
      comm::make_recording(comm::make_mpi(test::session(), std::chrono::seconds(60)));
  int layer = 0, slow_layer = 0;
  bool stop = false;  ///< on the last rank only
  StopCheck check{*recording, [this] {
                    bool const last = recording->rank() == recording->size() - 1;
                    return stop && last ? SIGTERM : 0;
                  }};
};

TEST_F(Check, AsksAtEveryLayerOfTheFirstStep) {
  EXPECT_EQ(questions(0.0, 4), (std::vector<int>{1, 2, 3, 4}));
}

TEST_F(Check, AsksAboutFourTimesPerSecondLater) {
  questions(0.0, 12);
  EXPECT_EQ(questions(1.0, 12), (std::vector<int>{3, 6, 9, 12})) << "12 layers in 1 second";
  EXPECT_EQ(questions(60.0, 12).size(), 12u) << "each layer takes longer than the interval";
}

TEST_F(Check, DoesNotAskInShortSteps) {
  questions(0.0, 12);
  EXPECT_TRUE(questions(0.9, 12).empty());
}

/// The step runs for less than a second until layer 3.
TEST_F(Check, AllRanksStopAtTheSameLayerAfterTheFirstSecond) {
  stop = true;
  slow_layer = 3;
  try {
    questions(0.0, 8);
    FAIL() << "no rank stopped";
  } catch (StopBetweenLayers const& stop) {
    EXPECT_EQ(stop.request, SIGTERM);
  }
  EXPECT_EQ(layer, 3);
}

}  // namespace
}  // namespace tessera::train
