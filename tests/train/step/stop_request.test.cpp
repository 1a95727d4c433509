#include "tessera/train/step/stop_request.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "becomes_true.hpp"

namespace tessera::train {
namespace {

/// A second signal counts when it comes more than a second after the first.
constexpr std::chrono::milliseconds later(1200);
/// Ends a child that its signal did not end.
constexpr std::chrono::seconds limit(30);

/// In a child process, which begins with one thread. Its exit code tells the first step that fails.
[[noreturn]] void take_signals() {
  StopRequest::install();
  if (StopRequest::signal() != 0 || StopRequest::take_save()) std::_Exit(1);
  ::kill(::getpid(), SIGUSR2);
  if (!becomes_true([] { return StopRequest::take_save(); })) std::_Exit(2);
  if (StopRequest::take_save() || StopRequest::signal() != 0) std::_Exit(3);
  ::kill(::getpid(), SIGUSR1);
  if (!becomes_true([] { return StopRequest::signal() == SIGUSR1; })) std::_Exit(4);
  ::kill(::getpid(), SIGTERM);  // within a second: the same request again
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // nothing is to happen
  if (StopRequest::signal() != SIGUSR1) std::_Exit(5);
  std::_Exit(0);
}

[[noreturn]] void take_the_same_signal_twice() {
  StopRequest::install();
  ::kill(::getpid(), SIGTERM);
  std::this_thread::sleep_for(later);
  ::kill(::getpid(), SIGTERM);
  std::this_thread::sleep_for(limit);
  std::_Exit(0);
}

/// The call sees the second signal before the process ends by it.
[[noreturn]] void write_last_words() {
  StopRequest::install();
  StopRequest::BeforeTheEnd const call([](int signal_number) {
    if (signal_number == SIGINT) (void)!::write(STDERR_FILENO, "last words", 10);
  });
  ::kill(::getpid(), SIGTERM);
  std::this_thread::sleep_for(later);
  ::kill(::getpid(), SIGINT);
  std::this_thread::sleep_for(limit);
  std::_Exit(0);
}

TEST(StopRequest, SignalsSetFlags) {
  EXPECT_EXIT(take_signals(), ::testing::ExitedWithCode(0), "");
}

TEST(StopRequest, ASecondSignalEndsTheProcess) {
  EXPECT_EXIT(take_the_same_signal_twice(), ::testing::KilledBySignal(SIGTERM), "");
}

TEST(StopRequest, ASecondSignalIsToldBeforeItEndsTheProcess) {
  EXPECT_EXIT(write_last_words(), ::testing::KilledBySignal(SIGINT), "last words");
}

TEST(StopRequest, Names) {
  EXPECT_EQ(StopRequest::name(SIGTERM), "SIGTERM");
  EXPECT_EQ(StopRequest::name(SIGXCPU), "SIGXCPU");
  EXPECT_EQ(StopRequest::name(StopRequest::time_limit), "the time limit");
  EXPECT_EQ(StopRequest::name(SIGALRM), "signal 14");
}

}  // namespace
}  // namespace tessera::train
