#pragma once
/// One table with an option of every kind, for the tests of options.

#include "tessera/config/option_table.hpp"
#include "tessera/config/word_reader.hpp"

namespace tessera::config {

inline OptionTable build_table() {
  using enum OptionType;
  OptionTable t;
  t.group("Numbers");
  t.add(integer, "max_steps", -1, "steps to run").at_least(-1).unit("steps");
  t.add(real, "learning_rate", 5e-5, "the rate").at_least(0).auto_is("the flag");
  t.add(integer, "stage", 0, "ZeRO stage").at_least(0).at_most(3);
  t.add(real, "scale", {}, "a factor").above(0);
  t.group("Words");
  t.add(boolean, "bf16", false, "bfloat16").alias("brain");
  t.add(boolean, "keep", true, "keep lines");
  t.add(boolean, "no_cuda", false, "host only");
  t.add(choice, "strategy", "steps", "when").one_of({"no", "steps"}).except("best", "use steps");
  t.add(list, "report_to", ConfigTree::Array{"none"}, "where")
      .one_of({"none", "all"})
      .except("wandb", "metrics.jsonl has it");
  t.add(path, "output_dir", {}, "where | to");
  t.add(json, "deepspeed", {}, "file or object").shown_as("path or object");
  t.add(string, "prompt", "", "text");
  t.add(boolean, "help", false, "this").alias("h");
  t.add(boolean, "compile", false, "compiled").hint("no effect here");
  t.add(integer, "workers", 0, "processes").hint("no effect");
  t.add(boolean, "push", false, "upload").refuse("nothing is uploaded; copy it");
  t.add(json, "fsdp", {}, "another library").refuse("use stage 3");
  return t;
}

inline OptionTable const& table() {
  static OptionTable const t = build_table();
  return t;
}

inline OptionValues flags(std::vector<std::string> const& words) {
  std::vector<std::string> positionals;
  return parse_flags(table(), words, positionals);
}

}  // namespace tessera::config
