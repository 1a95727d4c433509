#include "slurm/job_script.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "installation.hpp"
#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

char const* const plain =
    "#!/bin/bash -l\n# Two nodes.\n#SBATCH --nodes=2\n#SBATCH --requeue\n\nexec srun tessera-train "
    "\"$@\"\n";

TEST(SiteProfile, IsReadAndChecked) {
  auto const site = parse_site_profile(
      "# a site\n\nsbatch --constraint=gpu\nmodule openmpi/4.1\nexport NCCL_NET=AWS Libfabric\n",
      "x.conf");
  EXPECT_EQ(site,
            (SiteProfile{{"--constraint=gpu"}, {"openmpi/4.1"}, {{"NCCL_NET", "AWS Libfabric"}}}));
  for (char const* bad : {"sbatch constraint", "module", "export 1A=2", "export A", "load x"})
    EXPECT_THROW(parse_site_profile(bad, "x.conf"), DataError) << bad;
}

TEST(JobScript, IsTheTemplateWhenNothingIsGiven) { EXPECT_EQ(fill_job_script(plain, {}), plain); }

TEST(JobScript, OptionsReplaceTheTemplatesAndTheSites) {
  JobSettings settings;
  settings.site.sbatch = {"--nodes=3", "--constraint=gpu"};
  settings.sbatch = {"--nodes=4"};
  EXPECT_EQ(fill_job_script(plain, settings),
            "#!/bin/bash -l\n# Two nodes.\n#SBATCH --requeue\n#SBATCH --constraint=gpu\n#SBATCH "
            "--nodes=4\n\nexec srun tessera-train \"$@\"\n");
}

TEST(JobScript, ArgumentsAndVariablesAreQuoted) {
  JobSettings settings;
  settings.site.modules = {"openmpi/4.1"};
  settings.site.exports = {{"NCCL_NET", "AWS Libfabric"}};
  settings.arguments = {"--prompt", "it's $(touch x); `y`\n\"z\"", ""};
  EXPECT_EQ(fill_job_script("#!/bin/bash\nexec srun \"$@\"\n", settings),
            "#!/bin/bash\nmodule load openmpi/4.1\nexport NCCL_NET='AWS Libfabric'\nset -- "
            "--prompt 'it'\\''s $(touch x); `y`\n\"z\"' ''\nexec srun \"$@\"\n");
}

TEST(JobScript, OptionsThatSbatchWouldSplitAreRefused) {
  for (char const* bad : {"--job-name=a b", "--job-name=$(x)", "--comment='x'", "nodes=2", "--",
                          "--output=a\n#SBATCH --x", "--job-name=a#b"})
    EXPECT_THROW(fill_job_script(plain, {.site = {}, .sbatch = {bad}, .arguments = {}}), UsageError)
        << bad;
}

/// All templates and site profiles of the source tree.
std::vector<std::filesystem::path> shipped(char const* folder, char const* suffix) {
  std::vector<std::filesystem::path> files;
  for (auto const& entry : std::filesystem::directory_iterator(
           std::filesystem::path(TESSERA_TEST_DATA).parent_path() / folder))
    if (entry.path().extension() == suffix) files.push_back(entry.path());
  return files;
}

TEST(JobScript, EveryTemplateTakesEverySiteProfile) {
  auto const templates = shipped("slurm", ".sh"), sites = shipped("slurm/sites", ".conf");
  ASSERT_GE(templates.size(), 7u);
  ASSERT_GE(sites.size(), 4u);
  for (auto const& script : templates)
    for (auto const& site : sites) {
      SCOPED_TRACE(script.string() + " " + site.string());
      JobSettings settings;
      settings.site = parse_site_profile(read_text(site), site.string());
      settings.arguments = {"--do_train"};
      std::string const text = fill_job_script(read_text(script), settings);
      EXPECT_TRUE(text.starts_with("#!/bin/bash -l\n"));
      for (auto const& option : settings.site.sbatch)
        EXPECT_NE(text.find("#SBATCH " + option + "\n"), std::string::npos) << option;
      std::size_t const arguments = text.find("set -- --do_train\n");
      ASSERT_NE(arguments, std::string::npos);
      EXPECT_LT(text.rfind("#SBATCH "), arguments);
      EXPECT_LT(arguments, text.find("\"$@\""));
    }
}

}  // namespace
}  // namespace tessera::cli
