/// Disks that fail: every call of a save fails once with each of several errors, on one rank;
/// transfers are cut and interrupted.
#include "faults.hpp"

#include "crash_points.hpp"
#include "fixture.hpp"
#include "mpi_test.hpp"
#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/save/background_saver.hpp"
#include "tessera/checkpoint/save/restore.hpp"
#include "tessera/checkpoint/tools/verify.hpp"
#include "tessera/comm/compose/host_collectives.hpp"

using namespace tessera;
using namespace tessera::test;
using checkpoint::BackgroundSaver;
using ::testing::AnyOf;
using ::testing::HasSubstr;

namespace {

[[maybe_unused]] bool const scratch_in_memory = (use_memory_for_scratch(), true);

class Faults : public ::testing::TestWithParam<BackgroundSaver::Source> {
 protected:
  Faults()
      : comm(comm::make_mpi(session(), std::chrono::seconds(60))),
        units(toy_units()),
        plan(units, comm->size()),
        dir(comm::broadcast_bytes(
            *comm, concat("faults-", comm->size(), "-", ::getpid(), "-", ++count), 0)),
        run(dir / "checkpoints"),
        state(plan, comm->rank()) {
    comm->barrier();
  }
  ~Faults() override {
    tessera_set_faults("");
    comm->barrier();
  }

  checkpoint::SavedCheckpoint save(std::int64_t step) {
    auto request = request_for(run, step, plan, units);
    BackgroundSaver saver(*comm);
    saver.begin(request, state.fill(step).views(), GetParam());
    auto const saved = saver.finish();
    saver.finish_deletion();
    return saved;
  }
  /// A save of step 2 under @p rules on the rank @p victim. @return the message of its failure,
  /// empty when it went well
  std::string save_with(std::string const& rules, int victim) {
    comm->barrier();
    if (comm->rank() == victim) tessera_set_faults(rules.c_str());
    std::string message;
    try {
      save(2);
    } catch (IoError const& e) {
      message = e.what();
    }
    met = comm::all_reduce_value(*comm,
                                 std::int64_t{comm->rank() == victim ? tessera_faults_met() : 0},
                                 comm::ReduceOp::max);
    tessera_set_faults("");
    comm->barrier();
    return message;
  }
  std::int64_t wrong(std::int64_t step) {
    RankState read(plan, comm->rank());
    checkpoint::restore(checkpoint::read_manifest(run / checkpoint::step_name(step), *comm), plan,
                        read.views(), *comm);
    return read.wrong(step);
  }
  /// Rank 0 sees: the complete new checkpoint, or the old one and nothing of the new, or both
  /// where only `latest` could not be written.
  enum class Outcome { saved, failed, without_latest };
  void expect_whole(Outcome outcome) {
    bool const saved = outcome == Outcome::saved;
    if (comm->rank() == 0) {
      auto const found = checkpoint::find_latest(run);
      ASSERT_TRUE(found);
      EXPECT_EQ(found->note, "");
      EXPECT_EQ(found->step, saved ? 2 : 1);
      EXPECT_TRUE(checkpoint::verify(found->directory).ok());
      EXPECT_EQ(fs::exists(run / "step_00000002"), outcome != Outcome::failed);
      if (outcome == Outcome::without_latest) {
        EXPECT_TRUE(checkpoint::verify(run / "step_00000002").ok());
      }
      for (auto const& entry : fs::directory_iterator(run))
        EXPECT_THAT(entry.path().string(), ::testing::Not(HasSubstr(".tmp."))) << "is left";
    }
    comm->barrier();
    EXPECT_EQ(wrong(saved ? 2 : 1), 0);
  }
  void start_over() {
    comm->barrier();
    if (comm->rank() == 0) fs::remove_all(run);
    comm->barrier();
    save(1);
  }

  static int count;
  std::unique_ptr<comm::Collectives> comm;
  std::vector<memory::UnitSpec> units;
  zero::PartitionPlan plan;
  ScratchDirectory dir;
  fs::path run;
  RankState state;
  std::int64_t met = 0;
};
int Faults::count = 0;

/// After a failure that came when the checkpoint had its name already it counts, and the message
/// says so.
TEST_P(Faults, AnyCallMayFailOnce) {
  char const* const errors[] = {"EIO", "ENOSPC", "EDQUOT", "EACCES", "EROFS"};
  char const* const texts[] = {"Input/output error", "No space left on device",
                               "Disk quota exceeded", "Permission denied", "Read-only file system"};
  CrashPoints const points;
  int failures = 0, tried = 0;
  for (int victim = 0; victim < comm->size(); ++victim) {
    start_over();
    tessera_set_faults("");
    EXPECT_EQ(save_with(concat("path=", run.string(), ",nth=1000000,do=EIO"), victim), "");
    int calls = 0;
    // how many there are: the fault moves on until none is met
    for (int step = 64; step > 0; step /= 2)
      for (;; calls += step) {
        start_over();
        save_with(concat("path=", run.string(), ",nth=", calls + step, ",times=1,do=EIO"), victim);
        if (met == 0) break;
      }
    EXPECT_GT(calls, victim == 0 ? 40 : 10);
    for (int const call : points.choose(calls)) {
      std::size_t const e = static_cast<std::size_t>(call) % std::size(errors);
      SCOPED_TRACE(concat("call ", call, " of ", calls, " on rank ", victim, " fails with ",
                          errors[e], points.again()));
      start_over();
      std::string const message = save_with(
          concat("path=", run.string(), ",nth=", call, ",times=1,do=", errors[e]), victim);
      ++tried;
      if (message.empty()) {
        expect_whole(Outcome::saved);
        continue;
      }
      ++failures;
      EXPECT_THAT(message, HasSubstr(texts[e]));
      EXPECT_THAT(message, HasSubstr(run.string()));
      expect_whole(message.find("itself is complete") != std::string::npos ? Outcome::without_latest
                                                                           : Outcome::failed);
    }
  }
  EXPECT_GT(failures, 25);
  if (comm->rank() == 0)
    std::printf("%d calls failed, %d of them ended the save\n", tried, failures);
}

/// Network file systems refuse to remove a file that a reader has open.
TEST_P(Faults, WhatCannotBeRemovedIsTriedAgainUnderTheSameName) {
  start_over();
  auto const trash = [&] {
    std::vector<std::string> names;
    for (auto const& entry : fs::directory_iterator(run))
      if (entry.path().filename().string().starts_with(".trash."))
        names.push_back(entry.path().filename().string());
    return names;
  };
  std::vector<std::string> const one{".trash.step_00000007.tmp.1.1"};
  if (comm->rank() == 0) {
    fs::create_directory(run / "step_00000007.tmp.1");
    write_file(run / "step_00000007.tmp.1/shard_00000.h5", "half");
    tessera_set_faults("call=unlink,path=.trash.,do=EACCES");
    EXPECT_EQ(checkpoint::remove_unfinished_saves(run),
              std::vector<std::string>{"step_00000007.tmp.1"})
        << "out of sight";
    EXPECT_EQ(checkpoint::remove_unfinished_saves(run), std::vector<std::string>{});
    EXPECT_EQ(trash(), one);
    EXPECT_GT(tessera_faults_met(), 0);
    tessera_set_faults("");
  }
  save(2);
  EXPECT_EQ(trash(), std::vector<std::string>{}) << "a save removes what is left";
}

TEST_P(Faults, AFailedFlushIsNotTriedAgain) {
  for (int victim = 0; victim < comm->size(); ++victim) {
    start_over();
    EXPECT_THAT(save_with("call=fsync,path=shard_,times=1,do=EIO", victim),
                HasSubstr("cannot flush to disk"));
    EXPECT_EQ(met, 1);
    expect_whole(Outcome::failed);
  }
}

TEST_P(Faults, ShortAndInterruptedTransfersGoOn) {
  for (char const* rules : {"call=write,do=short",
                            "call=write,nth=2,times=1,do=EINTR;call=write,nth=7,times=3,do=EINTR",
                            "call=read,do=short"}) {
    SCOPED_TRACE(rules);
    start_over();
    tessera_set_faults(rules);
    EXPECT_EQ(save(2).directory, run / "step_00000002");
    EXPECT_EQ(wrong(2), 0);
    tessera_set_faults("");
    comm->barrier();
    expect_whole(Outcome::saved);
  }
}

/// On the build's own file system, where full pages of large extents bypass the page cache if
/// it lets them.
TEST_P(Faults, LargeWritesGoOnWhenTheyAreCutOrRefused) {
  if (comm->size() > 1 || GetParam() == BackgroundSaver::Source::snapshot)
    return;  // saves of one process, once
  fs::path const place = fs::current_path() / concat("large-writes-", ::getpid());
  for (char const* rules :
       {"", "call=write,path=shard_,do=short", "call=write,path=shard_,nth=12,times=4,do=EINTR",
        "call=write,path=shard_,nth=12,times=1,do=EINVAL"}) {
    SCOPED_TRACE(rules);
    tessera_set_faults(rules);
    std::string message;
    try {
      EXPECT_TRUE(checkpoint::verify(save_toy(place, 3, 2, 0, 600).directory).ok());
    } catch (IoError const& e) {
      // Message of the library that lays the file out, or of a file system without such writes
      message = e.what();
    }
    EXPECT_THAT(message, AnyOf("", HasSubstr("Invalid argument")));
    tessera_set_faults("");
  }
  std::error_code ignored;
  fs::remove_all(place, ignored);
}

TEST_P(Faults, AReadThatFailsIsReportedOnAllRanks) {
  start_over();
  if (comm->rank() == comm->size() - 1)
    tessera_set_faults("call=read,path=shard_,nth=2,times=1,do=EIO");
  EXPECT_THAT(message_of<IoError>([&] { wrong(1); }),
              AnyOf(HasSubstr("cannot read"), HasSubstr("Input/output error")));
  tessera_set_faults("");
  EXPECT_EQ(wrong(1), 0);
}

INSTANTIATE_TEST_SUITE_P(Sources, Faults,
                         ::testing::Values(BackgroundSaver::Source::in_place,
                                           BackgroundSaver::Source::snapshot),
                         [](auto const& info) {
                           return info.param == BackgroundSaver::Source::in_place ? "waiting"
                                                                                  : "background";
                         });

}  // namespace
