#include "slurm/pbs_script.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "installation.hpp"
#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

char const* const plain =
    "#!/bin/bash\n#PBS -N tessera\n#PBS -l select=2:ncpus=32:mpiprocs=4\n#PBS -l "
    "walltime=12:00:00\nexec mpiexec tessera-train \"$@\"\n";

TEST(PbsScript, OptionsOfSbatchBecomePbsLines) {
  JobSettings settings;
  settings.site.qsub = {"-l filesystems=home"};
  settings.site.sbatch = {"--ntasks-per-node=4", "--cpus-per-task=8"};
  settings.site.exports = {{"MPIEXEC_OPTIONS", "--depth 8"}};
  settings.sbatch = {"--nodes=8", "--gpus-per-node=4", "--time=1-06", "--partition=prod",
                     "--account=me"};
  settings.arguments = {"--prompt", "it's"};
  EXPECT_EQ(fill_pbs_script(plain, settings),
            "#!/bin/bash\n#PBS -N tessera\n#PBS -l filesystems=home\n#PBS -l "
            "walltime=30:00:00\n#PBS -q prod\n#PBS -A me\n#PBS -l "
            "select=8:ncpus=32:mpiprocs=4:ngpus=4\nexport MPIEXEC_OPTIONS='--depth 8'\nset -- "
            "--prompt 'it'\\''s'\nexec mpiexec tessera-train \"$@\"\n");
  EXPECT_EQ(ranks_of_pbs_script(fill_pbs_script(plain, settings)), 32);
}

TEST(PbsScript, WhatPbsDoesNotHaveIsRefused) {
  for (char const* bad : {"--qos=high", "--signal=USR1@60", "--nodes=2-4", "--gpus-per-node=a100:4",
                          "--time=UNLIMITED", "--account=a b"})
    EXPECT_THROW(fill_pbs_script(plain, {.site = {}, .sbatch = {bad}, .arguments = {}}), UsageError)
        << bad;
  EXPECT_THROW(fill_pbs_script("#!/bin/bash\n", {}), DataError) << "no select line";
}

TEST(PbsScript, TimesAreThoseOfSlurm) {
  for (auto const& [time, walltime] : std::map<std::string, std::string>{{"90", "01:30:00"},
                                                                         {"90:30", "01:30:30"},
                                                                         {"12:00:00", "12:00:00"},
                                                                         {"2-12", "60:00:00"},
                                                                         {"1-12:30", "36:30:00"}})
    EXPECT_EQ(pbs_walltime(time), walltime) << time;
}

TEST(PbsScript, TheShippedTemplateTakesEveryShippedProfile) {
  auto const folder = std::filesystem::path(TESSERA_TEST_DATA).parent_path() / "pbs";
  int profiles = 0;
  for (auto const& entry : std::filesystem::directory_iterator(folder / "sites")) {
    JobSettings settings;
    settings.site = parse_site_profile(read_text(entry.path()), entry.path().string());
    settings.arguments = {"--do_train"};
    auto const script = fill_pbs_script(read_text(folder / "multi-node.sh"), settings);
    for (auto const& line : settings.site.qsub) EXPECT_THAT(script, HasSubstr("#PBS " + line));
    EXPECT_THAT(script, HasSubstr("set -- --do_train\n"));
    EXPECT_LT(script.rfind("#PBS "), script.find("set -- --do_train"));
    EXPECT_THAT(script, Not(HasSubstr("select=2:ncpus=32:mpiprocs=4\n")));
    ++profiles;
  }
  EXPECT_GE(profiles, 2);
}

}  // namespace
}  // namespace tessera::cli
