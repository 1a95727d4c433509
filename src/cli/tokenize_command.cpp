#include "commands.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>

#include "installation.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/process.hpp"
#include "tessera/core/text.hpp"
#include "tessera/data/sequences/text_dataset.hpp"
#include "tessera/data/sequences/tokenized_files.hpp"
#include "tessera/data/sequences/tokenizer_training.hpp"
#include "tessera/data/tokenizer/tokenizer.hpp"

namespace tessera::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::string standard_input() {
  std::string text((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
  TESSERA_VALIDATE(!std::cin.bad(), IoError, "cannot read standard input");
  return text;
}

/// Progress on standard error: a status line on a terminal, else a line every ten seconds.
class ProgressLine {
 public:
  void update(data::TokenizeProgress const& progress) {
    auto const now = Clock::now();
    if (now - last_ < (terminal_ ? std::chrono::milliseconds(200) : std::chrono::seconds(10)))
      return;
    last_ = now;
    write(progress, terminal_ ? "\r" : "");
  }
  void finish(data::TokenizeProgress const& progress) {
    write(progress, terminal_ ? "\r" : "");
    if (terminal_) std::fputs("\n", stderr);
  }

 private:
  void write(data::TokenizeProgress const& progress, char const* start) const {
    double const seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    fmt::print(stderr, "{}{} % of {}, {}, {}, {} tokens per second{}", start,
               100 * progress.bytes / std::max<std::int64_t>(progress.total_bytes, 1),
               human_bytes(progress.total_bytes), counted(progress.records, "record"),
               counted(progress.tokens, "token"),
               with_commas(static_cast<std::int64_t>(static_cast<double>(progress.tokens) /
                                                     std::max(seconds, 1e-3))),
               terminal_ ? "" : "\n");
  }

  bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  Clock::time_point begin_ = Clock::now(), last_ = begin_;
};

struct TokenizeArguments {
  std::string tokenizer, file;
  std::optional<std::string> text;
  data::TokenizeRequest request;
  bool skip_broken_records = false;
  std::string chat;
  int show = 2;
  data::ExampleOptions examples;
};

/// Examples as --task sft trains on them: text and ids, on a terminal green where they are in the
/// loss, else in [[ ]].
void show_examples(TokenizeArguments const& a) {
  bool const colored = ::isatty(STDOUT_FILENO) == 1;
  std::string_view const begin = colored ? "\x1b[32m" : "[[", end = colored ? "\x1b[0m" : "]]";
  data::SequenceRequest request;
  request.text = a.chat;
  request.examples = a.examples;
  request.examples->tokenizer_directory = a.tokenizer;
  auto const shown =
      data::show_examples(request, *data::load_tokenizer(a.tokenizer), a.show, begin, end);
  fmt::print("{}\n", shown.form);
  for (auto const& example : shown.examples) {
    fmt::print("\n{}\n", example.text);
    for (std::int32_t const token : example.tokens) {
      bool const in_loss = (token & data::not_predicted) == 0;
      fmt::print("{}{}{} ", in_loss ? begin : "", token & data::token_id_bits, in_loss ? end : "");
    }
    fmt::print("\n");
  }
}

void write_ids(TokenizeArguments const& a) {
  data::TokenizeRequest request = a.request;
  request.text = a.file;
  request.broken_records =
      a.skip_broken_records ? data::BrokenRecords::skip : data::BrokenRecords::stop;
  auto const tokenizer = data::load_tokenizer(a.tokenizer);
  ProgressLine line;
  line.finish(data::tokenize_files(request, *tokenizer,
                                   [&](auto const& progress) { line.update(progress); }));
}

void print_ids(TokenizeArguments const& a) {
  auto const tokenizer = data::load_tokenizer(a.tokenizer);
  bool const from_file = !a.file.empty() && a.file != "-";
  std::vector<std::int32_t> ids;
  bool const has_text = a.text && *a.text != "-";
  tokenizer->encode(from_file ? read_text(a.file) : has_text ? *a.text : standard_input(), ids);
  fmt::print("{}\n", fmt::join(ids, " "));
}

}  // namespace

void add_tokenize(Command& app) {
  auto const a = std::make_shared<TokenizeArguments>();
  a->request.threads = static_cast<int>(allowed_cores().size());
  auto& tokenize = app.add_command("tokenize",
                                   "Print the token ids of a text, a file or standard input, or "
                                   "write those of text files to train from");
  tokenize
      .add("tokenizer DIR", a->tokenizer,
           "directory with tokenizer.json, or vocab.json and merges.txt")
      .required();
  tokenize.add("text TEXT", a->text, "text to tokenize; - or none: standard input");
  tokenize
      .add("-f,--file FILE", a->file,
           "file to tokenize; -: standard input; with --output "
           "files as --train_file names them")
      .excludes("text");
  tokenize
      .add("-o,--output PATH", a->request.output,
           "write the ids of each record to FILE.bin and FILE.idx (Megatron's "
           "format), which --train_file reads")
      .needs("file");
  tokenize.add("--append_eos", a->request.append_eos, "append the end-of-text token to records")
      .needs("output");
  tokenize
      .add("--skip_broken_records", a->skip_broken_records,
           "leave out records that cannot be read, with a warning")
      .needs("output");
  tokenize
      .add("--chat FILE", a->chat,
           "show the first examples of a file as tessera-train --task sft reads it: text, ids and "
           "the part in the loss")
      .excludes("text");
  tokenize.add("--show", a->show, "examples to show (2)").at_least(1).needs("chat");
  tokenize
      .add("--assistant_only_loss", a->examples.assistant_only_loss,
           "loss on the assistant's messages only")
      .needs("chat");
  tokenize
      .add("--chat_template_path PATH", a->examples.chat_template,
           "Jinja file in place of the tokenizer's chat template")
      .needs("chat");
  tokenize.add("--threads", a->request.threads, "threads that tokenize (default: the cores)")
      .at_least(1)
      .needs("output");
  tokenize.run([a] {
    if (!a->chat.empty())
      show_examples(*a);
    else if (!a->request.output.empty())
      write_ids(*a);
    else
      print_ids(*a);
  });
}

void add_tokenizer(Command& app) {
  auto const a = std::make_shared<data::TokenizerTrainingRequest>();
  a->vocabulary_size = 30000;
  auto& tokenizer = app.add_command("tokenizer", "Train a tokenizer");
  auto& train = tokenizer.add_command(
      "train", "Train a BPE tokenizer with the merges of Hugging Face's trainer");
  train
      .add("files FILES", a->text,
           "text files: one, several separated by commas, or a pattern in quotes")
      .required();
  train.add("-o,--output PATH", a->output, "directory for tokenizer.json").required();
  train
      .add("--vocab_size", a->vocabulary_size,
           "number of tokens with the special tokens and the alphabet")
      .at_least(2);
  train.add("--min_frequency", a->min_frequency, "merge only pairs that occur this often")
      .at_least(0);
  train.add("--like DIR", a->like,
            "tokenizer directory whose other parts and special tokens are kept (default: "
            "GPT-2's)");
  train.run([a] {
    std::int64_t const tokens = data::train_tokenizer(*a);
    fmt::print("wrote {} with {}{}\n", (a->output / "tokenizer.json").string(),
               counted(tokens, "token"),
               tokens < a->vocabulary_size ? "; the text has no more pairs to merge" : "");
  });
}

}  // namespace tessera::cli
