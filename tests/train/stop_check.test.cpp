#include "tessera/train/stop_check.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <vector>

#include "mpi_test.hpp"
#include "tessera/comm/host_collectives.hpp"

namespace tessera::train {
namespace {

struct Check : ::testing::Test {
  /// The calls of @p layers layers at which this rank was asked.
  std::vector<int> questions(double previous_seconds, int layers) {
    std::vector<int> out;
    check.begin_step(previous_seconds);
    for (layer = 1; layer <= layers; ++layer) {
      int const before = asked;
      check.between_layers();
      if (asked > before) out.push_back(layer);
    }
    return out;
  }

  std::unique_ptr<comm::Collectives> comm =
      comm::make_mpi(test::session(), std::chrono::seconds(60));
  int asked = 0, layer = 0;
  int stop_at_layer = 0;  ///< on the last rank only
  StopCheck check{*comm, [this] {
                    ++asked;
                    bool const last = comm->rank() == comm->size() - 1;
                    return last && stop_at_layer > 0 && layer >= stop_at_layer ? SIGTERM : 0;
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

TEST_F(Check, AllRanksStopAtTheSameLayer) {
  stop_at_layer = 3;
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
