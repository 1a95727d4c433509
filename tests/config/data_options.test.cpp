#include "detail/option_rows.hpp"

#include <gtest/gtest.h>

namespace tessera::config::detail {
namespace {

TEST(DataOptions, ReadLocalFilesInAnOrderOfTrainer) {
  ArgumentRows table;
  add_data_options(table);
  EXPECT_EQ(table.find("train_file")->support, Support::full);
  EXPECT_EQ(table.find("train_sampling_strategy")->support, Support::full);
  EXPECT_EQ(table.find("group_by_length")->support, Support::full);
}

/// A data set on the Hub and a resume that reads samples twice would train on something else.
TEST(DataOptions, AreRefusedWhereTheDataWouldDiffer) {
  ArgumentRows table;
  add_data_options(table);
  for (char const* const name : {"dataset_name", "streaming", "ignore_data_skip"})
    EXPECT_EQ(table.find(name)->support, Support::refused) << name;
  for (auto const& option : table.options())
    EXPECT_TRUE(option.support == Support::full || !option.note.empty()) << option.name;
}

}  // namespace
}  // namespace tessera::config::detail
