/**
 * Scripts by which shells complete a program's options: made from its table, so that they never differ
 * from its help. A shell runs nothing of ours when it completes.
 *
 * @module
 */
import { type Described, valueSchema } from "./config_schema.ts";
import { SHELLS, type ShownFlag, shownFlags } from "./flags.ts";
import { flagOf, UsageError } from "./spec.ts";

/** How the value of a flag is completed. */
type Hint =
  /** It takes none. */
  | { readonly kind: "none" }
  | { readonly kind: "words"; readonly words: readonly string[] }
  | { readonly kind: "file" }
  | { readonly kind: "directory" }
  /** Only the operator knows it. */
  | { readonly kind: "free" };

type Completed = ShownFlag & { readonly hint: Hint };

/**
 * The script for one shell.
 *
 * @throws {UsageError} for a shell that is not one of {@link SHELLS}.
 */
export function renderCompletion(program: Described, shell: string): string {
  const flags = shownFlags(program.table).map((flag) => ({ ...flag, hint: hintOf(program, flag) }));
  switch (shell) {
    case "bash":
      return bash(program.name, flags);
    case "zsh":
      return zsh(program.name, flags);
    case "fish":
      return fish(program.name, flags);
    default:
      throw new UsageError([
        `--completion: expected one of ${SHELLS.join(", ")}, got ${JSON.stringify(shell)}`,
      ]);
  }
}

function hintOf({ table }: Described, { flag, value }: ShownFlag): Hint {
  if (value === null) return { kind: "none" };
  if (value === "FILE") return { kind: "file" };
  if (value === "DIR") return { kind: "directory" };
  if (flag === "--completion") return { kind: "words", words: SHELLS };
  const spec = Object.entries(table).find(([key]) => flagOf(key) === flag)?.[1];
  const words = spec && valueSchema(spec.schema).enum;
  return Array.isArray(words) ? { kind: "words", words: words.map(String) } : { kind: "free" };
}

const functionOf = (name: string) => `_${name.replaceAll("-", "_")}`;

/** bash splits words at `=` unless told, and old ones have no compopt. */
function bash(name: string, flags: readonly Completed[]): string {
  const of = (kind: Hint["kind"]) =>
    flags.filter(({ hint }) => hint.kind === kind).map(({ flag }) => flag).join("|");
  const words = flags.flatMap(({ flag, hint }) =>
    hint.kind === "words" ? [`    ${flag}) words='${hint.words.join(" ")}' ;;`] : []
  );
  return `# bash completion of ${name}: source <(${name} --completion bash)
${functionOf(name)}() {
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD - 1]} words word
  if [ "$current" = '=' ]; then
    current=
  elif [ "$previous" = '=' ] && [ "$COMP_CWORD" -gt 2 ]; then
    previous=\${COMP_WORDS[COMP_CWORD - 2]}
  fi
  COMPREPLY=()
  case $previous in
    ${of("file")}) return ;;
    ${of("directory") || "''"}) compopt -o dirnames 2>/dev/null; return ;;
    ${of("free")}) words= ;;
${words.join("\n")}
    *) words='${flags.map(({ flag }) => flag).join(" ")}' ;;
  esac
  compopt +o default 2>/dev/null
  while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -W "$words" -- "$current")
}
complete -o default -F ${functionOf(name)} ${name}
`;
}

function zsh(name: string, flags: readonly Completed[]): string {
  const own = functionOf(name);
  const specs = flags.map(({ flag, value, help, hint }) => {
    const about = `[${help.replace(/[[\]\\]/g, "\\$&")}]`;
    if (hint.kind === "none") return `${flag}${about}`;
    const label = (value ?? "").replaceAll(":", "\\:");
    const action = { words: "", file: "_files", directory: "_files -/", free: " " }[hint.kind];
    const how = hint.kind === "words" ? `(${hint.words.join(" ")})` : action;
    return `${flag}=${about}:${label}:${how}`;
  });
  return `#compdef ${name}
# zsh completion of ${name}: source <(${name} --completion zsh)
${own}() {
  _arguments \\
${specs.map((spec) => `    ${quote(spec)}`).join(" \\\n")}
}
if [ "$funcstack[1]" = ${own} ]; then ${own} "$@"; else compdef ${own} ${name}; fi
`;
}

function fish(name: string, flags: readonly Completed[]): string {
  const lines = flags.map(({ flag, help, hint }) => {
    const start = `complete -c ${name} -l ${flag.slice(2)} -d ${quoteFish(help)}`;
    switch (hint.kind) {
      case "none":
        return start;
      case "words":
        return `${start} -x -a ${quoteFish(hint.words.join(" "))}`;
      case "file":
        return `${start} -r -F`;
      case "directory":
        return `${start} -x -a '(__fish_complete_directories)'`;
      case "free":
        return `${start} -x`;
    }
  });
  return `# fish completion of ${name}: ${name} --completion fish | source
complete -c ${name} -f
${lines.join("\n")}
`;
}

/** A word as sh and zsh take it. */
function quote(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`;
}

function quoteFish(word: string): string {
  return `'${word.replace(/['\\]/g, "\\$&")}'`;
}
