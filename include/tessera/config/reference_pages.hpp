#pragma once
/// --help of tessera-train, and the reference pages that are generated from the option tables.

#include <string>

namespace tessera::config {

/// Text of --help and of docs/reference/options.md.
std::string arguments_help();
std::string arguments_page();
/// Text of docs/reference/deepspeed-config.md.
std::string deepspeed_page();

}  // namespace tessera::config
