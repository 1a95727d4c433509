#include "base/hang_watch.hpp"

#include <gtest/gtest.h>

#include <future>

namespace tessera::comm::detail {
namespace {

using namespace std::chrono_literals;
using Watched = HangWatch::Watched;

TEST(HangWatch, SpeaksOfACallThatDoesNotReturn) {
  for (auto const thread : {Watched::caller, Watched::checker}) {
    std::promise<std::string> said;
    HangWatch watch(50ms, [&](std::string const& problem) { said.set_value(problem); });
    HangWatch::Inside const inside(watch, thread);
    auto problem = said.get_future();
    ASSERT_EQ(problem.wait_for(20s), std::future_status::ready);
    EXPECT_NE(problem.get().find("a call of NCCL or the device runtime on"), std::string::npos);
  }
}

TEST(HangWatch, CallsThatReturnAreNoHang) {
  bool spoke = false;  // during calls and a pause that together are longer than the limit of one
  {
    HangWatch watch(1000ms, [&](std::string const&) { spoke = true; });
    for (int i = 0; i < 30; ++i) {
      HangWatch::Inside const outer(watch, Watched::caller);
      HangWatch::Inside const inner(watch, Watched::caller);
      std::this_thread::sleep_for(10ms);
    }
    std::this_thread::sleep_for(1500ms);  // outside
  }
  EXPECT_FALSE(spoke);
}

}  // namespace
}  // namespace tessera::comm::detail
