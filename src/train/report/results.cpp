#include "tessera/train/report/results.hpp"

#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/log.hpp"

namespace tessera::train {

void write_results(std::filesystem::path const& output_dir, std::string const& split,
                   ConfigTree const& results) {
  write_file_atomically(output_dir / (split + "_results.json"), results.dump(4) + "\n");
  auto const all_file = output_dir / "all_results.json";
  ConfigTree all = ConfigTree::object();
  if (std::filesystem::exists(all_file)) {
    try {
      all = ConfigTree::read(all_file);
    } catch (DataError const& e) {
      log::warning(concat(e.what(), "; it is replaced"));
    }
  }
  for (auto const& [key, value] : results.as_object()) all.set(key, value);
  write_file_atomically(all_file, all.dump(4) + "\n");
}

}  // namespace tessera::train
