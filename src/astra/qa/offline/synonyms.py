"""Other words for what relations are called, so that a question does not repeat its tools' names.

The words of a phrase are exchanged before names stand in it, so that no name is touched.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

ENGLISH: Mapping[str, tuple[str, ...]] = {
    "asking price": ("list price",),
    "listings": ("properties",),
    "listing": ("property",),
    "agents": ("brokers",),
    "agent": ("broker",),
    "manager": ("head",),
    "salary": ("yearly pay",),
    "wage": ("hourly pay",),
    "products": ("articles",),
    "product": ("article",),
    "price": ("cost",),
    "sellers": ("vendors",),
    "seller": ("vendor",),
    "founder": ("creator",),
    "supervisor": ("overseer",),
    "stock": ("supply",),
    "doctors": ("physicians",),
    "doctor": ("physician",),
    "director": ("leader",),
    "nurse": ("carer",),
    "experience": ("years of practice",),
    "parcels": ("packages",),
    "parcel": ("package",),
    "driver": ("courier",),
    "truck": ("vehicle",),
    "owner": ("proprietor",),
    "load": ("cargo",),
    "guest": ("lodger",),
    "librarian": ("keeper",),
    "member": ("reader",),
    "cheapest": ("least expensive", "lowest-priced"),
    "dearest": ("most expensive", "highest-priced"),
    "longest": ("thickest",),
    "shortest": ("thinnest",),
    "worst": ("lowest-rated",),
    "best": ("top-rated",),
    "tallest": ("highest",),
    "largest": ("biggest",),
    "details": ("particulars",),
}
"""Words -> words that mean the same; longer ones come before those that they hold."""
CHINESE: Mapping[str, tuple[str, ...]] = {
    "要价": ("标价",),
    "经纪人": ("中介",),
    "佣金": ("中介费",),
    "年龄": ("岁数",),
    "薪水": ("工资",),
    "价格": ("售价",),
    "商品": ("货品",),
    "卖家": ("商家",),
    "库存": ("存货",),
    "评分": ("得分",),
    "病人": ("患者",),
    "体重": ("重量",),
    "资历": ("从业年数",),
    "医生": ("大夫",),
    "包裹": ("快件",),
    "司机": ("驾驶员",),
    "业主": ("物主",),
    "住客": ("客人",),
    "酒店": ("宾馆",),
    "客房": ("房间",),
    "读者": ("借书人",),
    "数量": ("总数",),
    "详情": ("具体情况",),
}
"""The same for Chinese, where no word may begin with an earlier one."""
QUESTIONS: Mapping[str, tuple[str, ...]] = {
    "asking_price": ("How much is {x} listed at?", "What would {x} cost me?"),
    "rooms": ("How many rooms does {x} have?",),
    "listed_date": ("When did {x} go on the market?",),
    "agent": ("Who is selling {x}?",),
    "district": ("In which part of town is {x}?",),
    "office": ("Where does {x} work?",),
    "manager": ("Who runs {x}?", "Who is in charge of {x}?"),
    "mayor": ("Who governs {x}?",),
    "fee": ("How much does {x} charge?",),
    "tax": ("How much tax is due in {x}?",),
    "age": ("How old is {x}?",),
    "salary": ("How much does {x} earn?",),
    "wage": ("How much is {x} paid an hour?",),
    "brand": ("Who makes {x}?",),
    "seller": ("Who offers {x}?",),
    "warehouse": ("Where does {x} keep goods?",),
    "founder": ("Who started {x}?",),
    "supervisor": ("Who is in charge of {x}?",),
    "price": ("How much does {x} cost?", "What do I pay for {x}?"),
    "stock": ("How many of {x} are left?",),
    "colors": ("In how many colors does {x} come?",),
    "rating": ("How well is {x} rated?",),
    "joined_date": ("Since when has {x} been with us?",),
    "doctor": ("Who treats {x}?",),
    "ward": ("Where does {x} lie?",),
    "weight": ("How heavy is {x}?", "How much does {x} weigh?"),
    "admission_date": ("When did {x} come in?",),
    "clinic": ("Where does {x} practise?",),
    "experience": ("For how many years has {x} practised?",),
    "specialty": ("What is the field of {x}?",),
    "nurse": ("Who looks after {x}?",),
    "director": ("Who leads {x}?",),
    "budget": ("How much may {x} spend?",),
    "driver": ("Who delivers {x}?",),
    "depot": ("Where is {x} kept?",),
    "load": ("How heavy is {x}?",),
    "zone": ("To which zone does {x} go?",),
    "shipping_date": ("When does {x} leave?",),
    "truck": ("What does {x} drive?",),
    "garage": ("Where is {x} parked?",),
    "mileage": ("How far has {x} been driven?",),
    "owner": ("To whom does {x} belong?",),
    "hotel": ("Where is {x}?",),
    "guest": ("Who is staying in {x}?",),
    "beds": ("How many beds does {x} have?",),
    "arrival_date": ("When does {x} arrive?",),
    "height": ("How tall is {x}?",),
    "chain": ("To which group does {x} belong?",),
    "bonus": ("How much extra does {x} get?",),
    "member": ("Who has {x} at home?",),
    "branch": ("Where can I find {x}?",),
    "pages": ("How long is {x}?",),
    "shelf": ("On which shelf is {x}?",),
    "floor": ("On which floor is {x}?",),
    "librarian": ("Who runs {x}?",),
    "fines": ("How much does {x} owe?",),
    "country": ("In which country is {x}?",),
    "city": ("Which city does {x} serve?",),
    "population": ("How many thousand people live in {x}?",),
    "elevation": ("How high does {x} lie?",),
    "currency": ("What do people pay with in {x}?",),
    "continent": ("In which part of the world is {x}?",),
}
"""A relation's part after the dot -> questions for it as people ask them."""
_EXCHANGED = 0.5
"""How often a word is exchanged."""


def own_words(language: str, rng: random.Random) -> dict[str, str]:
    """The words that one question uses throughout in place of others."""
    known = CHINESE if language == "zh" else ENGLISH
    return {word: rng.choice(others) for word, others in known.items() if rng.random() < _EXCHANGED}


def reworded(phrase: str, language: str, words: Mapping[str, str]) -> str:
    """A phrase with ``words`` in place of those that they stand for."""
    known = CHINESE if language == "zh" else ENGLISH
    edge = "" if language == "zh" else r"\b"
    # All known words are found, so that none is exchanged inside a longer one.
    spoken = re.compile(f"{edge}({'|'.join(map(re.escape, known))}){edge}")
    return spoken.sub(lambda match: words.get(match.group(1), match.group(1)), phrase)
