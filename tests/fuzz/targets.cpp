#include <unistd.h>

#include <fstream>

#include "fuzz.hpp"

namespace tessera::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr Target all[] = {{"json", json},
                          {"manifest", manifest},
                          {"model_config", model_config},
                          {"deepspeed_config", deepspeed_config},
                          {"training_options", training_options},
                          {"safetensors", safetensors},
                          {"torch_file", torch_file},
                          {"torch_pickle", torch_pickle},
                          {"deepspeed", deepspeed},
                          {"tokenizer", tokenizer},
                          {"vocabulary", vocabulary},
                          {"chat", chat},
                          {"records", records},
                          {"blocks", blocks},
                          {"shard", shard}};

class Folder {
 public:
  Folder() {
    bool const in_memory = fs::is_directory("/dev/shm") && ::access("/dev/shm", W_OK) == 0;
    path_ = (in_memory ? fs::path("/dev/shm") : fs::temp_directory_path()) /
            concat("tessera-fuzz-", ::getpid());
    fs::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    if (::getpid() == owner_) fs::remove_all(path_, ignored);
  }
  fs::path const& path() const { return path_; }

 private:
  pid_t owner_ = ::getpid();
  fs::path path_;
};

}  // namespace

std::span<Target const> targets() { return all; }

Target const& find_target(std::string_view name) {
  std::string known;
  for (auto const& target : all) {
    if (target.name == name) return target;
    known += concat(known.empty() ? "" : ", ", target.name);
  }
  throw UsageError(concat("there is no target '", name, "'; known are ", known));
}

fs::path const& folder() {
  static Folder const one;
  return one.path();
}

fs::path put(std::string const& name, std::string_view bytes) {
  fs::path const path = folder() / name;
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return path;
}

}  // namespace tessera::fuzz
