#include "tessera/comm/base/flight_recorder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <latch>
#include <sstream>

#include "scratch_files.hpp"
#include "tessera/comm/compose/host_collectives.hpp"

namespace tessera::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

std::string content(std::filesystem::path const& file) {
  std::ostringstream out;
  out << std::ifstream(file).rdbuf();
  return out.str();
}

TEST(FlightRecorder, StatesAreThoseOfTheEvents) {
  std::latch go(1);
  auto const before = memory::make_worker_queue("before"),
             queue = memory::make_worker_queue("operations");
  before->submit([&] { go.wait(); });
  auto const input = before->record();
  queue->wait(input);
  auto const end = queue->record();
  auto const broken = memory::make_worker_queue("broken");
  broken->submit([] { throw std::runtime_error("no"); });
  auto const error = broken->record();
  error.wait_for(20s);
  FlightRecorder recorder;
  recorder.add("first", {}, {});
  recorder.add("second", {}, end);
  recorder.add("third", input, end);
  recorder.add("fourth", {}, error);
  auto const text = recorder.text();
  EXPECT_THAT(text, ContainsRegex(" s ago  done +first\n.* s ago  runs +second\n"
                                  ".* s ago  waits for its input +third\n.*failed +fourth\n"));
  go.count_down();
}

TEST(FlightRecorder, KeepsTheLastOperationsInTheirOrder) {
  FlightRecorder recorder;
  for (int i = 0; i < 1000; ++i) recorder.add(std::to_string(i), {}, {});
  auto const text = recorder.text();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), FlightRecorder::capacity);
  EXPECT_THAT(text, ContainsRegex("  936\n"));
  EXPECT_TRUE(text.ends_with("  999\n"));
}

TEST(FlightRecorder, KnowsWhatRunsInTheCaller) {
  auto const line_of = [](std::string const& what) {
    std::string line, found;
    for (std::istringstream text(FlightRecorder::of_process().text()); std::getline(text, line);)
      if (line.find(what) != std::string::npos) found = line;
    return found;
  };
  FlightRecorder::of_process().run(
      [] { return "in the caller"; },
      [&] { EXPECT_THAT(line_of("in the caller"), HasSubstr("runs")); });
  EXPECT_THAT(line_of("in the caller"), HasSubstr("done"));
  EXPECT_THROW(FlightRecorder::of_process().run([] { return "wrong"; },
                                                [] { throw std::runtime_error("no"); }),
               std::runtime_error);
  EXPECT_THAT(line_of("wrong"), HasSubstr("failed"));
}

TEST(FlightRecorder, WritesOnceThereIsAPlace) {
  ScratchFiles const files;
  FlightRecorder recorder;
  recorder.write("nowhere");
  recorder.set_destination(files / "record", 12);
  recorder.add("all_reduce number 3", {}, {});
  recorder.write("a rank is missing");
  EXPECT_THAT(content(files / "record" / "rank_00012.txt"),
              ContainsRegex("rank 12 on .*\na rank is missing\n\nThe last collective "
                            "operations:\n.*all_reduce number 3"));
}

TEST(FlightRecorder, CollectivesTellIt) {
  auto const comm = make_loopback();
  float value = 1.0f;
  comm->wait(comm->all_reduce({&value, Dtype::fp32, {1}}, ReduceOp::sum, {}));
  EXPECT_THAT(FlightRecorder::of_process().text(),
              HasSubstr("done                 all_reduce number 1 (1 fp32 elements"));
}

}  // namespace
}  // namespace tessera::comm
