#pragma once
/// A plan as text, as JSON and as a picture.

#include <string>
#include <vector>

#include "tessera/core/config_tree.hpp"
#include "tessera/plan/ladder.hpp"
#include "tessera/plan/planner.hpp"

namespace tessera::plan {

/// The table of choices, in the guides' order.
std::string table_text(Planner const& planner, std::vector<PlannedChoice> const& choices);
std::string ladder_text(Planner const& planner, std::vector<LadderStep> const& steps);
/// Which choice, and why not a faster one. @pre @p best is one of @p choices
std::string recommendation_text(Planner const& planner, std::vector<PlannedChoice> const& choices,
                                PlannedChoice const& best);

ConfigTree to_json(Planner const& planner, std::vector<PlannedChoice> const& choices,
                   std::vector<LadderStep> const& ladder, PlannedChoice const* best);

/// The flags of tessera-train that make a run with @p choice of one with @p words: those that the
/// choice decides are replaced. @param deepspeed the file of its DeepSpeed configuration
std::vector<std::string> training_words(std::vector<std::string> const& words,
                                        config::TrainingArguments const& arguments,
                                        Choice const& choice, std::string const& deepspeed);

/// SVG: memory per rank of each choice, stacked by purpose, with the limit; below it the time of a
/// step of each choice, if the plan has times.
std::string draw_plan(Planner const& planner, std::vector<PlannedChoice> const& choices);

}  // namespace tessera::plan
