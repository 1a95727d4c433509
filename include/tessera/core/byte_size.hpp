#pragma once
/// Sizes in bytes as users write them.

#include <cstdint>
#include <string>

namespace tessera {

/// "5GB", "500MB", "2GiB", "1048576" as bytes (GB = 1e9, as Hugging Face counts).
/// @throws UsageError for anything else, and for less than a byte
std::int64_t parse_size(std::string const& text);

}  // namespace tessera
