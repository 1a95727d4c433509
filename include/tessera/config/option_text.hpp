#pragma once
/// The texts that an option table gives: --help and its page of the reference.

#include <string>

#include "tessera/config/option_table.hpp"

namespace tessera::config {

/// Text for --help: grouped, wrapped at 100 columns. Refused options are left to the reference
/// page.
std::string help(OptionTable const& table, std::string const& program);

/// Meaning, values, default and support of one option: lines of text.
std::string explain(Option const& option);

/// A reference page: @p head, then one Markdown table a group with type, default, meaning and
/// support.
std::string markdown(OptionTable const& table, std::string const& head);

}  // namespace tessera::config
