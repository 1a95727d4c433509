#pragma once
/// Small files written atomically and durably.

#include <filesystem>
#include <string>
#include <string_view>

namespace tessera {

/// Writes @p text to a temporary file next to @p file, syncs and renames it: a reader sees the old
/// or the new file, never a partial one. A device or a pipe (/dev/null, /dev/stdout) is written to.
/// @throws IoError naming the file and the system's reason; the temporary file is removed
void write_file_atomically(std::filesystem::path const& file, std::string const& text);

/// Copies the content of a small file by write_file_atomically(). The copy gets the permissions of
/// a new file (umask, group of its directory), not those of @p from, which may be read-only.
/// @throws IoError naming the file that cannot be read or written and the system's reason
void copy_file_atomically(std::filesystem::path const& from, std::filesystem::path const& to);

/// Writes all of @p text to an open descriptor, retrying after interruptions and short writes.
/// @throws IoError naming @p file
void write_all(int descriptor, std::string const& text, std::filesystem::path const& file);

/// Says for messages about a refused access which directory of @p path, or which file, has an owner
/// and mode that this user does not pass: "/data/run (owner alice, mode 0700) is closed to user
/// bob".
std::string describe_denial(std::filesystem::path const& path);

/// "<what> <path>: <strerror(errno_value)>", and what to try: "cannot read /data/a: Permission
/// denied; /data (owner alice, mode 0700) is closed to user bob".
std::string path_error(std::string_view what, std::filesystem::path const& path, int errno_value);

/// Makes a rename or a new entry in @p directory durable where the file system supports it.
void sync_directory(std::filesystem::path const& directory);

}  // namespace tessera
