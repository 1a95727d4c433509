#include "tessera/train/generate/text_generation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "tessera/core/clock.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/text.hpp"
#include "tessera/train/report/growing_text.hpp"
#include "tessera/train/step/stop_request.hpp"

namespace tessera::train {
namespace fs = std::filesystem;
namespace {

std::string prompt_in(std::string const& line, std::string const& where) {
  ConfigTree const record = ConfigTree::parse(line, where);
  for (char const* field : {"prompt", "text"}) {
    ConfigTree const* const text = record.is_object() ? record.find(field) : nullptr;
    if (text && text->is_string()) return text->as_string();
  }
  throw DataError(concat(where, " has no text; write {\"prompt\": \"...\"}"));
}

ConfigTree to_tree(std::vector<Tokens> const& lists) {
  ConfigTree out = ConfigTree::array();
  for (auto const& list : lists) {
    ConfigTree one = ConfigTree::array();
    for (std::int32_t const token : list) one.push_back(std::int64_t{token});
    out.push_back(std::move(one));
  }
  return out;
}

std::vector<Tokens> lists_of(ConfigTree const& tree) {
  std::vector<Tokens> out;
  for (auto const& one : tree.as_array()) {
    auto& list = out.emplace_back();
    for (auto const& token : one.as_array())
      list.push_back(static_cast<std::int32_t>(token.as_int()));
  }
  return out;
}

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

/// The texts of a job. Rank 0 has the tokenizer.
class TextGeneration {
 public:
  using Receiver = std::function<void(ConfigTree const& record)>;

  /// @param prompt_file  empty: --prompt, whose text is printed while it grows
  /// @param receiver     called on rank 0 with each text of a file
  TextGeneration(JobContext const& job, TrainingRun const& run, fs::path prompt_file,
                 Receiver receiver)
      : job_(job),
        run_(run),
        prompt_file_(std::move(prompt_file)),
        receiver_(std::move(receiver)),
        stops_(job.arguments.stop_strings),
        printed_(stops_) {}

  /// Collective. @throws StopBetweenLayers
  std::vector<GeneratedText> texts(StopCheck& stop_check) {
    read();
    return generate(run_.model_context(), prompts_, options(stop_check));
  }

  Outcome run(StopCheck& stop_check) {
    auto const started = std::chrono::steady_clock::now();
    try {
      auto const results = texts(stop_check);
      if (!job_.is_root()) return {};
      if (streams()) finish(results[0]);
      std::size_t tokens = 0;
      for (auto const& result : results) tokens += result.tokens.size();
      double const seconds = seconds_since(started);
      log::info(fmt::format("{} after {} in {:.1f} s, {:.1f} per second",
                            counted(static_cast<std::int64_t>(tokens), "new token"),
                            streams() ? "the prompt" : counted(std::ssize(texts_), "prompt"),
                            seconds, static_cast<double>(tokens) / seconds));
    } catch (StopBetweenLayers const& e) {
      if (job_.is_root() && streams()) print("\n");
      return {ExitCode::stopped_early,
              concat("stopped by ", StopRequest::name(e.request),
                     " while text was generated; run the same command again to repeat it")};
    }
    return {};
  }

 private:
  /// One prompt's text is printed while it grows.
  bool streams() const { return prompt_file_.empty(); }
  bool is_end(std::int32_t token) const {
    return std::find(ends_.begin(), ends_.end(), token) != ends_.end();
  }

  /// Prompts and ends of text, on every rank.
  void read() {
    auto const& arguments = job_.arguments;
    auto const lists = comm::broadcast_from_root(job_.comm, [&] {
      texts_ = streams() ? std::vector{arguments.prompt} : read_prompts(prompt_file_);
      auto const& tokenizer = *run_.data.tokenizer;
      std::vector<Tokens> out{ends_of_text(run_.source.weights_directory, run_.model->config(),
                                           run_.model->vocabulary_size())};
      if (out[0].empty() && tokenizer.eos_id() >= 0) out[0].push_back(tokenizer.eos_id());
      for (auto const& text : texts_) {
        auto& tokens = out.emplace_back(tokenizer.encode(text));
        if (tokens.empty()) tokens.push_back(out[0].empty() ? 0 : out[0][0]);
      }
      return to_tree(out).dump();
    });
    prompts_ = lists_of(ConfigTree::parse(lists, "prompts"));
    ends_ = prompts_.front();
    prompts_.erase(prompts_.begin());
    std::size_t longest = 0;
    for (auto const& prompt : prompts_) longest = std::max(longest, prompt.size());
    std::int64_t const room = run_.model->max_positions() - static_cast<std::int64_t>(longest);
    if (job_.is_root() && room > 0 && room < arguments.max_new_tokens)
      log::info(fmt::format("the model has {} positions: at most {} follow the longest prompt",
                            run_.model->max_positions(), counted(room, "new token")));
    given_.resize(prompts_.size());
    if (!job_.is_root()) return;
    for (std::size_t i = 0; i < prompts_.size(); ++i)
      given_[i] = run_.data.tokenizer->decode(prompts_[i]).size();
    if (streams()) print(run_.data.tokenizer->decode(prompts_[0]));
  }

  GenerationOptions options(StopCheck& stop_check) {
    auto const& a = job_.arguments;
    GenerationOptions out{.max_new_tokens = a.max_new_tokens,
                          .sampling = {.temperature = a.temperature,
                                       .top_k = a.top_k,
                                       .top_p = a.top_p,
                                       .min_p = a.min_p,
                                       .repetition_penalty = a.repetition_penalty},
                          .seed = static_cast<std::uint64_t>(a.seed),
                          .ends_of_text = ends_,
                          .rows_per_pass = a.per_device_eval_batch_size};
    out.between_passes = [&stop_check] { stop_check.ask(); };
    if (streams() || !stops_.empty())
      out.after_token = [this](std::size_t prompt, Tokens const& tokens) {
        std::string const text = text_after(prompt, tokens);
        if (streams()) print(printed_.grow(text));
        return GrowingText(stops_).stops(text);
      };
    out.after_text = [this](std::size_t prompt, GeneratedText const& result) {
      if (!streams()) give_record(prompt, result);
    };
    return out;
  }

  /// The text of @p tokens, which follow a prompt.
  std::string text_after(std::size_t prompt, Tokens const& tokens) const {
    Tokens all = prompts_[prompt];
    all.insert(all.end(), tokens.begin(), tokens.end());
    if (is_end(all.back())) all.pop_back();
    std::string const text = run_.data.tokenizer->decode(all);
    return text.substr(std::min(given_[prompt], text.size()));
  }

  void finish(GeneratedText const& result) {
    print(printed_.finish(text_after(0, result.tokens)));
    print("\n");
  }

  void give_record(std::size_t prompt, GeneratedText const& result) const {
    char const* const reason = result.finish == FinishReason::end_of_text ? "eos"
                               : result.finish == FinishReason::stopped   ? "stop"
                                                                          : "length";
    GrowingText text(stops_);
    receiver_(ConfigTree()
                  .set("prompt", texts_[prompt])
                  .set("text", std::string(text.finish(text_after(prompt, result.tokens))))
                  .set("new_tokens", std::ssize(result.tokens))
                  .set("finish_reason", reason));
  }

  JobContext const& job_;
  TrainingRun const& run_;
  fs::path prompt_file_;
  Receiver receiver_;
  std::vector<std::string> stops_;
  GrowingText printed_;
  std::vector<std::string> texts_;  ///< rank 0
  std::vector<Tokens> prompts_;
  Tokens ends_;
  std::vector<std::size_t> given_;  ///< bytes of each prompt's own text; rank 0
};

}  // namespace

std::vector<std::string> read_prompts(fs::path const& file) {
  std::ifstream in(file);
  TESSERA_VALIDATE(in && !fs::is_directory(file), IoError, "cannot read the prompts in ",
                   file.string(), ": ", in ? "it is a directory" : std::strerror(errno),
                   "; give a text file or a .jsonl file");
  bool const records = file.extension() == ".jsonl";
  std::vector<std::string> out;
  std::int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    if (++number == 1) {
      require_narrow(line, file.string());
      line = without_mark(line);
    }
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    out.push_back(records ? prompt_in(line, concat(file.string(), ", line ", number)) : line);
  }
  TESSERA_VALIDATE(!out.empty(), DataError, file.string(), " has no prompts");
  return out;
}

Tokens ends_of_text(fs::path const& model_directory, ConfigTree const& model_config,
                    std::int64_t vocabulary) {
  fs::path const file = model_directory / "generation_config.json";
  std::error_code failed;
  ConfigTree const own = !model_directory.empty() && fs::is_regular_file(file, failed)
                             ? ConfigTree::read(file)
                             : ConfigTree::object();
  for (ConfigTree const* config : {&own, &model_config}) {
    ConfigTree const* const ids = config->find("eos_token_id");
    if (!ids || ids->is_null()) continue;
    Tokens out;
    for (auto const& id : ids->is_array() ? ids->as_array() : ConfigTree::Array{*ids}) {
      TESSERA_VALIDATE(id.is_int(), DataError, config == &own ? file.string() : "config.json",
                       ": eos_token_id is ", ids->dump(), "; it must be an integer or a list");
      if (id.as_int() >= 0 && id.as_int() < vocabulary)
        out.push_back(static_cast<std::int32_t>(id.as_int()));
    }
    if (!out.empty()) return out;
  }
  return {};
}

Outcome generate_text(JobContext const& job, TrainingRun const& run, StopCheck& stop_check) {
  TESSERA_VALIDATE(!run.source.tokenizer_directory.empty(), UsageError,
                   "--do_generate needs a tokenizer; give --tokenizer_name DIR");
  return TextGeneration(job, run, job.arguments.prompt_file,
                        [](ConfigTree const& record) { print(record.dump() + "\n"); })
      .run(stop_check);
}

std::vector<ConfigTree> sample_texts(JobContext const& job, TrainingRun const& run,
                                     StopCheck& stop_check) {
  std::vector<ConfigTree> out;
  TextGeneration(job, run, job.arguments.eval_prompts, [&out](ConfigTree const& record) {
    out.push_back(record);
  }).texts(stop_check);
  return out;
}

}  // namespace tessera::train
