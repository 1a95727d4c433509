#pragma once
/// Small files that must be whole or absent.

#include <filesystem>
#include <string>

namespace tessera {

/// Writes @p text to a temporary file beside @p file, syncs it and renames it: a reader sees the
/// old or the new file, never a part.
/// @throws IoError naming the file and the system's reason; nothing is left behind
void write_file_atomically(std::filesystem::path const& file, std::string const& text);

/// Writes all of @p text to an open descriptor, going on after interruptions and short writes.
/// @throws IoError naming @p file
void write_all(int descriptor, std::string const& text, std::filesystem::path const& file);

/// Makes a rename or a new entry in @p directory durable; file systems that cannot are left alone.
void sync_directory(std::filesystem::path const& directory);

/// "2026-01-31T12:00:00Z"
std::string utc_timestamp();

}  // namespace tessera
