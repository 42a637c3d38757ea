"""The phrases by which agents refuse and report, and how their sentences are taken apart."""

from __future__ import annotations

import re

from astra.arena.act_phrases import any_of
from astra.arena.claims import stems

# What is refused or told -----------------------------------------------------------------------

REFUSED = any_of(
    r"(?<!you )(?:can't|cannot|couldn't|mustn't) (?:help|do|make|change|offer|grant|allow|go|take)",
    r"(?:i|we)(?:'m| am|'re| are) (?:declining|refusing|rejecting|denying|forced to)",
    r"only (?:an?|the|our) (?:\w+ ){1,3}(?:can|may|could|is able)",
    r"(?:colleague|librarian|human|specialist|manager|officer|employee|staff|team|supervisor|"
    r"someone)s?(?: else)? (?:has|have|needs?|would have|must|will have)(?: to)? "
    r"(?:approve|decide|do|handle|look|check|see|judge|deal)",
    r"\w*(?:n't| not) (?:foreseen|intended|provided for|planned)",
    r"(?:break|breach|violate|contravene|against|contrary to)s?\b.{0,30}\b(?:rules?|policy|"
    r"policies|terms|regulations?)",
    r"(?:i'll|i will|must|have to) leave .{0,30}\b(?:unchanged|untouched|alone|"
    r"as (?:it is|they are))",
    r"(?:tools?|functions?|rules?|policy|"
    r"policies|toolbox)\b[^.?!]*(?:n't|\bnot|\bno|\bnever)", r"(?:nobody|no one|neither of "
    r"us)\b.*\bcan",
    "(?:won't|will not|doesn't|does not) work", "(?:falls?|lies|"
    "is|are) outside", "have to turn down",
    r"rules? (?:\w+ )?out", "rules? against", "(?:i|we) failed to", "reports? an error",
    "(?:above|beyond|outside|out of) (?:my|our)", "(?:told|instructed|"
    "required|asked) not to", "stays? (?:as|the way) (?:it is|they are|is)",
    "only (?:able|allowed|permitted|authori[sz]ed) to", r"i (?:can|may|could)\b[^.?!]*\bbut "
    r"(?:not|no)",
    r"(?:no longer|not)(?: \w+)? (?:possible|allowed|permitted|available|an option)", "nope",
    r"(?:is|are)(?: \w+)? (?:unavailable|disabled|out of order|out of service)",
    r"return(?:s|ed) an error", "an error (?:occurred|came up|has occurred)", r"due to an? "
    r"(?:\w+ )?(?:error|failure|fault)",
    r"(?:i|we)(?:'m| am| are|'re)?(?: (?:really|so|very|currently|simply|therefore|also|still|"
    r"unfortunately|afraid(?: that)?|sorry,? but i))* (?:can't|cannot|can not|could not|couldn't|"
    r"won't|will not|not able|unable|don't have|do not have|lack|must (?:decline|refuse|deny)|"
    r"have to (?:decline|refuse|deny|reject)|have (?:declined|refused)|had to decline|"
    r"not (?:allowed|permitted|authori[sz]ed)|declined?|refused?|may not)",
    r"\w+'ve (?:had to decline|"
    r"declined)", "unable to", "not be able", "impossible", "unfortunately", "must decline",
    r"\w+(?:n't| not) (?:be )?(?:possible|allowed|permitted|available|eligible|supported|"
    r"offered|accepted|covered|"
    r"something (?:i|we) can|a reason|among|one of)",
    "(?:cannot|can't|could not|couldn't|may not|(?<!you )won't) be",
    r"(?:against|violates?|outside|beyond|not within|prohibited by|forbidden by) (?:the |our |"
    r"my )?"
    r"(?:\w+ )?(?:policy|policies|rules?|scope|ability|abilities|capabilit\w+)",
    r"(?:do not|don't|does not|doesn't|won't|will not) (?:let|allow|permit|enable) (?:me|us|you|"
    r"for|this|that|it)", r"(?:we|i) (?:do not|don't) (?:offer|accept|support|provide|do)",
    "regrettably", "as (?:declined|refused|rejected)", "nothing (?:more |else )?(?:i|we) can",
    "too late to", "(?:have|need) to (?:leave|keep)", "(?:would|'d) (?:rather|prefer) not",
    r"(?:not|isn't) in my power", r"(?:break|breach)\w* (?:the|our) rules?",
    "beyond (?:what|my)", "out of the question", "(?:have to|must) say no",
    r"(?:is not|isn't|are "
    r"not|aren't) (?:a thing|ones?|something) (?:we|i|that|which)",
    "(?:policy|rules?) (?:do not|don't|does not|doesn't|forbids?|prohibits?|prevents?)",
    "(?:has been|have been|had been|was|were|is) (?:declined|refused|denied|rejected)",
    r"i(?:'m| am) (?:sorry|afraid)\b.{0,30}\bbut", "none of (?:my|the) tools",
    "can only (?:help|assist)", "no (?:tool|way|option|function|means) (?:to|for|that|of)",
    r"turn (?:this|it|that|you|your request)\b.{0,20}\bdown",
    r"(?:is|are|was|were) (?:\w+ly )?(?:excluded|exempt|limited to|restricted to|off[- ]limits|"
    r"ruled out)",
    r"^\W*(?:no, |sorry, )?not (?:possible|allowed|permitted|available|eligible|supported)",
    r"nothing in (?:my|our)", r"(?:rules?|policy|policies)\b.{0,40}\bno",
    r"you(?:'d| would|'ll| will)? (?:(?:have|need|want) to|must|should|better|may want to|might "
    r"want to) (?:ask|see|contact|call|"
    r"visit|speak|go to|go through|turn to|phone|talk)", "had to (?:reject|refuse|deny|decline|"
    "turn)",
    "(?:i|we)(?:'m| am|'re| are)? (?:must not|mustn't|not supposed|not meant|shouldn't|should "
    "not)",
    "hands are tied", "end of the (?:road|line)", r"(?:hit|reached|exhausted|used up) (?:\w+ "
    r")*(?:limit|maximum|allowance)",
    r"(?:have|has|need|needs|must)(?: to)?(?: be)? (?:go|made|done|handled|dealt|arranged|"
    r"come)\b.{0,20}\b"
    r"(?:through|via|in person|office|staff|at the|by the)",
    "there (?:is|are|was|were) no", r"no \w+ (?:was|were) found",
    r"(?<!you'll )(?<!you will )(?<!you're )(?<!you are )(?:no|not|n't|never|nor|without|"
    r"lack\w*|missing|\w+n't)(?: \w+){0,4}? (?:able|allowed|permitted|"
    r"permission|functions?|functionality|tools?|feature|ways?|means|authority|authori[sz]ed|"
    r"eligible|supported|capable|set up|equipped|designed|built|trained|supposed to|right "
    r"(?:one|person|place|contact)|capabilit\w+|entitled|remit|scope|mandate|"
    r"in a position|provision|disposal|mechanism|access|within my|up to me|part of (?:what|my)|"
    r"possibility)(?! yet)",
    r"(?:no|not|\w+n't|nothing|none)(?: \w+){0,4} (?:i|we) (?:can|could|may|am able|are able)",
    r"turned? (?:\w+ )?down", "(?:ruled|knocked) (?:it |that |this )?out", "no can do",
    "(?:something|things?) went wrong", r"technical (?:issue|problem|error|difficult\w+|fault)s?",
    "try again (?:later|tomorrow|another)", "(?:regret|sadly|alas)",
    r"(?:i'm|i am|we're) (?:\w+ )?afraid (?:not|that(?:'s| is) not)", "not going to be",
    r"(?:can|may|could|am|are|is|'m) only(?: be)? (?!one\b|\d)(?:\w+ ){0,8}(?:if|when|at least|"
    r"at most|within|before|once|until|"
    r"who|that|for)", r"only (?:\w+ ){1,8}(?:can|may|could) be",
    r"too (?:late|early|close|far|soon|short notice|old)", r"(?:exceeds?|over|above|past) "
    r"(?:the|my|our) (?:\w+ )?"
    r"(?:limit|maximum|deadline|cut-?off|allowance|authority)", "(?:ineligible|prohibited|"
    "forbidden)",
    r"(?:have|need|has|had) to (?:pass on|say no|disappoint|stop)", r"(?:so|answer is|afraid "
    r"it's a) no(?=[,.!]|$)",
    r"(?:not|n't)(?: \w+){0,2} (?:my|our) (?:job|area|department|responsibility|call)",
    r"(?:don't|do not|doesn't|does not|didn't|did not) (?:meet|fulfil|qualify|satisfy)\w*",
)  # fmt: skip
UNVERIFIED = re.compile(
    r"\b(?:can't|cannot|can not) (?:tell|say|promise)(?: \w+){0,2} yet\b|"
    r"\b(?:until|till|before|unless) (?:i|we|you|your)\b.{0,30}\b(?:verif|identif|authentic|"
    r"check|look|found|located|confirmed)"
)
"""What cannot be done yet, and what comes first is the agent's to do."""
COULD_YOU = re.compile(
    r"\b(?:could|can|would|will) you(?: please| kindly| also| just)* (\w+)\b[^.?!]*\?"
)
"""What the other one is asked to do; the group is the verb."""
HANDED = any_of(
    r"(?:(?:hand|pass|transfer|forward|refer|connect|rout|escalat)\w*|sen[dt]|speak to|talk to|"
    r"turn "
    r"to)\b.{0,60}\b(?:colleague|human|"
    r"agent|person|specialist|team|staff|supervisor|representative|manager|department|someone|"
    r"support)s?",
    r"(?:colleague|specialist|team member|representative|human agent|human)s? (?:is going to|"
    r"will|"
    r"can|shall|would)",
    r"(?:transfer|pass|hand|forward)\w* (?:this|it|you|your (?:request|report|case|complaint|"
    r"question|"
    r"query|concern))\b.{0,20}\b(?:on|over|along|to (?:them|him|her|a|the|our|my|one of|"
    r"someone))",
    r"(?:forward|escalat|referr)ed (?:this|it|that|you|your|the)\b",
    r"(?:colleague|team|staff|librarian|someone|specialist|department|desk|office|agent|manager|"
    r"representative|human)s? (?:will|must|has to|needs to|is going to|are going to|"
    r"can) (?:\w+ )?(?:be in touch|get (?:in "
    r"touch|back)|contact|reach|call|follow|handle|look|decide|take)|"
    r"(?:colleague|specialist|human)s? takes? (?:over|this|it)",
    r"escalat(?:e|ed|ing)", r"put(?:ting)? (?:you|this) through to", r"transfer(?:red|ring)? you",
    r"hand(?:ed|ing)? (?:this|it|you|your)\b.{0,30}\bover",
    r"(?:with|to|by|at|of|for|alert\w*|inform\w*|notif\w+|involv\w+|ask(?:ing)?|(?:'ve|have) "
    r"asked|get|got) (?:(?:one of )?(?:our|my|the|another|human) (?:[\w-]+ ){0,3}|"
    r"an? (?:human |senior )?(?=colleague|human|specialist|supervisor|manager))"
    r"(?:colleagues?|team|specialists?|manager|supervisor|department|human|person|staff|expert|"
    r"advis[eo]r)",
    r"(?:contact|call|phone|ring|visit|approach|reach out to|turn to|get in touch with|speak to|"
    r"speak with|go to) (?:the|our|"
    r"your|an?) (?:[\w-]+ )?(?:shop|clinic|office|library|desk|reception|hotline|helpline|line|"
    r"branch|counter|"
    r"museum|venue|provider|school|depot|town hall|authority)",
    r"(?:colleague|human|specialist|manager|supervisor|team)s? (?:has|have|took|is|are) (?:\w+ "
    r")?(?:taken|taking|over|dealing|handling|looking)",
    r"(?:someone|somebody|people) (?:from|in|at) (?:the|our|my|charge)",
    r"(?:desk|office|team|colleague|staff|branch|department|specialist|manager|"
    r"person)s?\b.{0,20}\b(?:handles?|deals? with|looks? after|"
    r"takes? care|sees? to|(?:is|are) responsible)", r"staff\b.{0,20}\bwill",
    r"contact (?:the|our|customer|a) (?:\w+ )?(?:support|staff|team|service|desk|office)",
)  # fmt: skip
DONE = any_of(
    r"(?:just )?finished \w+ing", "managed to", "(?:is|are) (?:now )?live",
    r"(?:has|have|had|was|were|got|\w+'(?:ve|s)|is|are)(?: now| been| already| just| also| "
    r"successfully| all| gone ahead and)* (?P<verb>\w+?(?:ed|en|id|ut|et|ne|lt|un|old|wn|ade|"
    r"ent|eft))",
    r"(?:has|have|had|was|were)(?: not|n't)(?: yet| been)* (?P<undone>\w+ed)",
    "success(?:ful|fully)?", "(?<!be )(?<!get )(?:all )?(?:done|completed?)", "all set",
    r"(?:went|gone) through", r"worked(?= out|\W|$)", "succeeded", "in place", "in effect",
    "taken effect",
    r"(?<![\"'] )(?<![\"'])i (?!need)(?:also |just |only |already |went ahead and )*"
    r"(?P<past>\w+ed|found)",
    "taken care of", r"^(?:(?:ok|okay|great|right|good|yes|all)\W+|(?:the |your )?(?:\w+al|"
    r"\w+ion|\w+ment) )?(?P<bare>(?!worked|succeeded)\w+ed|withdrawn|paid)(?=\W*$|[,:])",
)  # fmt: skip
"""It is done, or has been; of a way with a verb, the verb is a group."""
PERFECT = re.compile(r"\b(?:has|have|had|was|were|been|\w+'ve)\b|^i\b")
SUPPOSED = re.compile(
    r"\b(?:will|shall|would|could|can|may|might|must|should|if|once|when|whenever|to be|who|"
    r"people|person|someone|anyone|usually|often|typically|generally|until|unless|before|ensure|"
    r"make sure|how|what|\w+'(?:ll|d))\b"
)
"""What stands before what would be done, or is by others, in one clause with it."""
BREAK = re.compile(r"[,;:](?=\s)")
FOUND = stems(
    "accepted applied approved assigned begun checked cleared complete completed confirmed "
    "corrected decided done dropped fixed found fulfilled gone handled identified informed "
    "left lifted linked listed located locked logged looked made matched notified overdue "
    "owed paid processed put resolved restored seen sent sorted stopped taken told touched "
    "unlocked verified waived"
)
"""What agents say they did besides changes."""
TOLD = any_of(
    "is|are|was|were|has|have|had|costs?|shows?|found|see|there's|it's|that's|stands?|remains?",
    "starts?|ends?|falls?|returns?|here (?:is|are)|here's|means|expires?|belongs?|amounts?",
    "leaves?|contains?|includes?|owe|appl(?:y|ies)|comes? to|totals?|runs?|lasts?|covers?",
    "(?:is|are|was|were|has)n't",
)  # fmt: skip
NOTHING = any_of(
    "no",
    "not",
    r"\w+n't",
    "none",
    "nothing",
    "already",
    "still",
    "only",
    "now",
    "remains?",
    "here (?:is|are)",
    "here's",
    "i found",
    "i see",
    "found",
)
"""Words that tell something of what the world holds without a value."""
CODE = re.compile(
    r"```\w*\s*\n|`[^`\n]*\w\(|\bdef \w+\(|\b(?:from \w\S* )?import \w|\bcallback\b|\bjson\b|"
    r"\b(?:python|javascript|html|api|snippet|method|regex|script|syntax)s?\b|https?:|"
    r"\bfunction\b.{0,80}\b(?:takes|returns?|accepts|called)\b|^#+ ",
    re.I | re.M,
)
"""Talk of programs, which no user of a service desk is told."""
HOW_TO = any_of(
    r"(?:follow(?:ing)?|these|are the|some|few|simple) steps", r"steps (?:to|for|you)",
    r"here(?:'s| is| are) (?:how|an example|some (?:tips|examples))", "step-by-step",
)  # fmt: skip
"""Instructions to somebody, by which no agent tells what it did."""
BLANK = re.compile(
    r"[\[<{](?:the |your |my |insert |enter |customer |user |client |agent |company |full )*"
    r"(?:name|date|title|number|email|address|company|customer|user|phone|organi[sz]ation|"
    r"position|contact|signature|insert|department|reason|amount|time)\b[^\]>}\n]{0,40}[\]>}]",
    re.I,
)
"""What a template leaves to be filled in."""
NOT_NOW = re.compile(
    r"\b(?:will|shall|going to|would|could|can|may|might|let me|must|needs?|should|if|once|"
    r"someone|people|person|anyone|she|he|usually|often|typically|generally|imagine|suppose|"
    r"for example|until (?:you|i)|when(?:ever)? you)\b|"
    r"^\W*(?:then |and |or )?(?:pick|use|ensure|try|delete|repeat|click|create|run|follow|"
    r"replace|"
    r"type|copy|install|add|remove|make|write|choose|select)"
    r" (?:the|all|an?|your|this|that|sure|to|any|these)\b|"
    r"'(?:ll|d)\b"
)
I_CAN_TELL = re.compile(
    r"\b(?:i|we) (?:can|could|would like to|'d like to|must|may) (?:also |now |"
    r"only )?(?:confirm|see|tell you|inform you|"
    r"report)\b"
)
"""What comes before something that is told."""
I_SEE = re.compile(
    r"^\W*(?:\w+,? )?i (?:understand|see|hear)(?: that)? you(?: want|'d| would| wish| need)"
)
CHATTER = re.compile(
    r"^\W*(?:hello|hi|hey|thank(?:s| you)|sure|certainly|of course|great|ok|okay|understood|"
    r"got it|"
    r"no problem|absolutely|good (?:morning|afternoon|evening|day)|you're welcome|my pleasure|"
    r"welcome|sorry|i apologi[sz]e|i(?:'m| am) (?:happy|glad|here|sorry|ready|an?\b)|have a|"
    r"goodbye|"
    r"bye|one moment|just a moment|please (?:wait|hold)|hold on|perfect|i understand|"
    r"i see(?=\W*$)|"
    r"take care|alright|noted|apologies)\b"
)
MY = re.compile(r"\bmy (?=(\w[^.?!]{0,30}))(?:\w+ (?=(\w[^.?!]{0,30})))?")
MINE = ("email", "name", "full name", "postcode", "account", "legal name", "reason")
"""What users call their own, besides rows."""
NAMES = re.compile(r"[^\s|()\[\]{},;:\"'“”!?#/.]+")
"""Words and keys."""

# How sentences are taken apart ----------------------------------------------------------------

WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?|\d+")
CLAUSE = re.compile(r"[,;:.!](?=\s)|\s[-–—]+\s|[–—]")
TO_KNOW = re.compile(
    r"\b(?:know|tell me|ask(?: you)?|say|and|,) (?:which|what|when|how many|how long|how much|"
    r"by how|for how|until when|why|who)\b.*"
)
"""What is asked for beside agreement."""
ONE_OF = re.compile(
    r"\b(?:(?:one|any|some) of|either|options?|possibilities|choose|pick|select|possible|"
    r"allowed|valid|accepted|available|permitted)\b"
    r"[^:?!]{0,40}(?::| are| include) [^:]+(?:,| or )[^:]+"
)
"""One of several things that are listed after it."""
LOST = any_of(r"(?:not|n't)(?: quite| really)?(?: sure (?:i|what|that i))? (?:understand|follow|"
r"get what|clear)",
            "unclear", "what you mean")  # fmt: skip
"""Understands too little to propose anything."""
STUTTER = re.compile(r"\b(\w{3,})(?:[\s,.]+\1\b){3,}|\w+(?:_[a-z]+){9,}")
"""The same word again and again."""
OR_SHALL = re.compile(
    r"\bor (?:do|would|should|shall|can|could|may) (?:you|i|we)\b|\bor (?:i|we) (?:can|could|"
    r"would)\b"
)
"""One thing to do or another."""
PARTICIPLE = re.compile(r"\b(withdraw|pay|void|make|take|give|lend|send|do)(?:n|ne|r|en)\b")
"""The verb of what was withdrawn, taken or given."""
HOW_ABOUT = re.compile(r"\b(?:how|what) about (?:i|we|me)\b|\bwhy (?:don't|not) (?:i|we)\b")
GO_ON = re.compile(
    r"\b(?:go|move|carry|press|push) (?:ahead|forward|on|through|for it)\b|"
    r"\byou(?:'re| are) (?:really |still |quite )?(?:happy|fine|ok|okay|comfortable|sure|"
    r"certain)\b|"
    r"\b(?:green light|go-ahead|your (?:ok|okay|consent|approval|permission|agreement))\b|"
    r"\b(?:proceed|continue|goes? ahead)\b"
)
"""Words for going on with what was named."""
GET_DONE = re.compile(
    r"^(?:take care of|see to|take on|start on|give|do|make)\b|^(?:get|have)\b.{1,60}\b(?:\w+ed|"
    r"withdrawn|done|paid|sent|changed|through|out of the way)\b"
)
REST = re.compile(
    r"\b(?:before|until|unless|if|whether|which|what|when|once|after|about|because|since|as)\b|"
    r"[,;:]\s"
)
"""Begins what is not what is going to be done."""
BUT = any_of("but", "though", "however", "unfortunately")
HELP = any_of("help|assist|support")
ANY_ROW = any_of("any|another|others?")
"""Words for no change in particular."""
WH_OR_ONE_OF = any_of("which|what|when|how|why|who|where|whose", "one of", "either")
LIGHT = frozenset("use take start give go do make try work offer".split())
"""Verbs that change something with what is named beside them."""
PRESENT = re.compile(
    r"(?:^|[,:;] |\bthen |\bfirst |\band |\bok |\bokay )i (?:now |then |first |next |hereby |"
    r"also |just )*"
    r"((?!set|put|let)[a-z]+(?<!ed)(?:(?<=do) the \w+)?)\b"
)
"""I do it now; the group is the verb."""
AFTERWARDS = re.compile(
    r"^then\b|\bright after\b|\bafter(?:wards?| that)\b|\bi(?:'ll| will) then\b"
)
"""What waits for what was asked before."""
ACCEPT = re.compile(
    r"\bwould you (?:accept|be (?:ok|okay|happy|fine|willing|open|interested))\b|\byou live with\b"
)
"""Whether something else would be taken."""
EAGER = any_of(r"(?:glad|happy|pleased|love|delighted) to")
"""Would do it, once what is asked for is known."""
NOTHING_ELSE = re.compile(
    r", (?:so|and) (?:you|there|no)\b[^,?!]*\b(?:else|more|further)\b[^,?!]*$"
)
"""The end of a sentence that tells that nothing is left to do."""
YOU_LATER = re.compile(r"^(?:(?:please )?note (?:that )?|but |and )?you(?:'ll| will| won't)\b")
"""What is true of the user after a change."""
