#include "detail/resolvers.hpp"

#include <gtest/gtest.h>

#include "tessera/config/resolved_config.hpp"

namespace tessera::config::detail {
namespace {

Reporting reporting(std::vector<std::string> words, char const* json = "") {
  if (*json) words.insert(words.end(), {"--deepspeed", json});
  return resolve(parse_options(words), 1, 64).reporting;
}

TEST(Reporting, IsOffByDefault) {
  EXPECT_EQ(reporting({}), Reporting{});
  EXPECT_EQ(reporting({}, R"({"tensorboard": {"enabled": false, "output_path": "logs"},
      "comms_logger": {"enabled": false}, "flops_profiler": {"enabled": false}})"),
            Reporting{});
}

TEST(Reporting, MonitorsHaveDirectories) {
  auto const r = reporting({"--output_dir", "out", "--report_to", "tensorboard"},
                           R"({"tensorboard": {"enabled": true, "output_path": "logs/tb"},
                               "csv_monitor": {"enabled": true, "job_name": "a"}})");
  EXPECT_EQ(r.tensorboard, "logs/tb/DeepSpeedJobName");
  EXPECT_EQ(r.csv, "a");
  EXPECT_EQ(r.trainer_tensorboard, "out/runs");
  auto const all = reporting({"--report_to", "all", "--logging_dir", "tb"});
  EXPECT_EQ(all.trainer_tensorboard, "tb");
  EXPECT_TRUE(all.wandb && all.mlflow && all.has_monitors());
  EXPECT_FALSE(r.wandb || r.mlflow || reporting({}).has_monitors());
}

TEST(Reporting, ProfilersHaveTheirSettings) {
  auto const r = reporting({}, R"({"steps_per_print": 10, "memory_breakdown": true,
      "dump_state": true, "flops_profiler": {"enabled": true, "profile_step": 5, "detailed": false,
      "top_modules": 3, "recompute_fwd_factor": 1.0, "output_file": "flops.txt"},
      "comms_logger": {"enabled": true, "verbose": true, "prof_all": false,
      "prof_ops": ["all_reduce"]}})");
  EXPECT_EQ(r.steps_per_print, 10);
  EXPECT_TRUE(r.memory_breakdown && r.dump_state && r.wall_clock_breakdown);
  ASSERT_TRUE(r.flops_profiler && r.comms_logger);
  EXPECT_EQ(*r.flops_profiler, (FlopsProfiler{5, 1.0, 3, false, "flops.txt"}));
  EXPECT_EQ(*r.comms_logger, (CommsLogger{true, {"all_reduce"}}));
}

}  // namespace
}  // namespace tessera::config::detail
