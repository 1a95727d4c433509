#include "tessera/train/report/tracker.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <fstream>

#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/log.hpp"

namespace tessera::train {
namespace fs = std::filesystem;
namespace {

std::int64_t milliseconds_now() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// The directory of the file store.
fs::path store_of(fs::path const& output_dir) {
  std::string uri = environment_variable("MLFLOW_TRACKING_URI", (output_dir / "mlruns").string());
  if (uri.starts_with("file:")) uri = uri.substr(uri.starts_with("file://") ? 7 : 5);
  TESSERA_VALIDATE(uri.find("://") == std::string::npos && uri != "databricks", ConfigError,
                   "MLFLOW_TRACKING_URI is ", uri,
                   ", but a run is written to files only; give a directory, or unset it for "
                   "output_dir/mlruns, and bring the run into a server with `mlflow "
                   "migrate-filestore`");
  return fs::absolute(uri);
}

/// A text as YAML, which has that of JSON.
std::string yaml_text(std::string const& text) { return ConfigTree(text).dump(); }

/// The experiment of this name in @p store; it is made where there is none.
fs::path experiment_in(fs::path const& store) {
  std::string const name = environment_variable("MLFLOW_EXPERIMENT_NAME", "Default");
  for (std::error_code ignored; auto const& entry : fs::directory_iterator(store, ignored)) {
    std::ifstream in(entry.path() / "meta.yaml");
    for (std::string line; std::getline(in, line);)
      if (line == "name: " + name || line == "name: " + yaml_text(name)) return entry.path();
  }
  std::string id = "0";
  if (name != "Default")
    id = std::to_string(100'000'000'000'000'000 +
                        std::stoll(run_id(store / name, 12).of_directory, nullptr, 16));
  fs::path const directory = store / id;
  std::error_code error;
  fs::create_directories(directory, error);
  TESSERA_VALIDATE(!error, IoError, "cannot create ", directory.string(), ": ", error.message(),
                   "; set MLFLOW_TRACKING_URI to a directory that can be written");
  write_file_atomically(
      directory / "meta.yaml",
      fmt::format("artifact_location: {}\ncreation_time: {}\nexperiment_id: '{}'\n"
                  "last_update_time: {}\nlifecycle_stage: active\nname: {}\n",
                  yaml_text("file://" + directory.string()), milliseconds_now(), id,
                  milliseconds_now(), yaml_text(name)));
  return directory;
}

/// The newest run below @p experiment whose id begins with @p begin; empty when there is none.
fs::path newest_mlflow_run(fs::path const& experiment, std::string const& begin) {
  fs::path newest;
  fs::file_time_type changed{};
  for (std::error_code ignored; auto const& entry : fs::directory_iterator(experiment, ignored)) {
    fs::path const meta = entry.path() / "meta.yaml";
    if (!entry.path().filename().string().starts_with(begin) || !fs::exists(meta)) continue;
    auto const time = fs::last_write_time(meta, ignored);
    if (!newest.empty() && time <= changed) continue;
    newest = entry.path();
    changed = time;
  }
  return newest;
}

/// Rows are "<time> <value> <step>".
void drop_rows_from(fs::path const& file, std::int64_t first_step) {
  std::ifstream in(file);
  std::string kept;
  for (std::string line; std::getline(in, line);)
    if (auto const space = line.rfind(' ');
        space != std::string::npos && std::atoll(line.c_str() + space) < first_step)
      kept += line + "\n";
  write_file_atomically(file, kept);
}

/// Names as the Trainer's callback has them: train/loss is loss, eval/loss is eval_loss.
std::string metric_name(std::string const& tag) {
  if (tag.starts_with("train/")) return tag.substr(6);
  return tag.starts_with("eval/") ? "eval_" + tag.substr(5) : tag;
}

std::string metric_text(double value) {
  return std::isfinite(value) ? ConfigTree(value).dump() : fmt::format("{}", value);
}

class MlflowRun : public Tracker {
 public:
  MlflowRun(TrackedRun const& run, std::int64_t first_step) : name_(run.name) {
    fs::path const experiment = experiment_in(store_of(run.output_dir));
    RunId const made = run_id(run.output_dir, 16);
    std::string const given = environment_variable("MLFLOW_RUN_ID");
    if (!given.empty())
      directory_ = experiment / given;
    else if (first_step > 1)
      directory_ = newest_mlflow_run(experiment, made.of_directory);
    if (directory_.empty()) directory_ = experiment / made.text();
    for (char const* part : {"metrics", "artifacts"}) {
      std::error_code error;
      fs::create_directories(directory_ / part, error);
      TESSERA_VALIDATE(!error, IoError, "cannot create ", (directory_ / part).string(), ": ",
                       error.message());
    }
    for (auto const& entry : fs::recursive_directory_iterator(directory_ / "metrics"))
      if (entry.is_regular_file()) drop_rows_from(entry.path(), first_step);
    constexpr int running = 1;
    write_meta(running, "null");
    put("tags/mlflow.runName", name_);
    put("tags/mlflow.source.name", "tessera-train");
    put("tags/mlflow.user", user());
    for (auto const& [name, value] : run.parameters.as_object()) {
      std::string const text = value.is_string() ? value.as_string() : value.dump();
      constexpr std::size_t longest = 250;  // that the Trainer's callback writes
      if (text.size() <= longest) put(fs::path("params") / name, text);
    }
    log::info(concat("MLflow: the run is in ", directory_.string(),
                     "; MLFLOW_ALLOW_FILE_STORE=true lets MLflow 3 read it"));
  }

  void write(std::int64_t step, std::vector<Scalar> const& scalars) override {
    for (auto const& scalar : scalars)
      put(fs::path("metrics") / metric_name(scalar.tag),
          fmt::format("{} {} {}\n", milliseconds_now(), metric_text(scalar.value), step),
          std::ios::app);
  }
  void write_text(std::int64_t step, std::string const& tag, std::string const& text) override {
    put(fs::path("artifacts") / (metric_name(tag) + ".txt"),
        fmt::format("step {}: {}\n", step, text), std::ios::app);
  }
  void end() override {
    constexpr int finished = 3;
    write_meta(finished, std::to_string(milliseconds_now()));
  }

 private:
  static std::string user() { return environment_variable("USER", std::to_string(::getuid())); }

  void write_meta(int status, std::string const& end_time) {
    std::string const id = directory_.filename().string();
    write_file_atomically(
        directory_ / "meta.yaml",
        fmt::format("artifact_uri: {}\nend_time: {}\nentry_point_name: ''\nexperiment_id: '{}'\n"
                    "lifecycle_stage: active\nrun_id: {}\nrun_name: {}\nsource_name: ''\n"
                    "source_type: 4\nsource_version: ''\nstart_time: {}\nstatus: {}\ntags: []\n"
                    "user_id: {}\n",
                    yaml_text("file://" + (directory_ / "artifacts").string()), end_time,
                    directory_.parent_path().filename().string(), id, yaml_text(name_), started_,
                    status, yaml_text(user())));
  }

  /// Small files without a sync: there are hundreds of them, and a resume writes them again.
  void put(fs::path const& name, std::string const& text,
           std::ios::openmode mode = std::ios::trunc) const {
    fs::path const file = directory_ / name;
    std::error_code ignored;
    fs::create_directories(file.parent_path(), ignored);
    std::ofstream out(file, mode);
    if (!(out << text).flush())
      log::warning(concat("MLflow's file could not be written: ", file.string()));
  }

  std::string name_;
  fs::path directory_;
  std::int64_t started_ = milliseconds_now();
};

}  // namespace

std::unique_ptr<Tracker> mlflow_run(TrackedRun const& run, std::int64_t first_step) {
  return std::make_unique<MlflowRun>(run, first_step);
}

}  // namespace tessera::train
